"""samestep.Model: what is not of its kind is refused where it is written."""

import pytest

import samestep
from samestep.common.errors import ConfigError


def build() -> object:
    return None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"torch": 3}, "torch=3) is int; give the function"),
        ({"tf": "model"}, "tf='model') is str; give the function"),
        ({"loss": build}, "loss=...) is function; give a name, or a function for each framework"),
        ({"metric": 3}, "metric=3) is int; give a name, or a function"),
        ({"segments": build}, "segments=...) is function; give names"),
        ({"tensor_plan": ["hidden"]}, "tensor_plan=...) is list; give names"),
        ({"optimizer": build}, "optimizer=...) is function; give names"),
        ({"names": "a"}, "names='a') is str; give names"),
        ({"blocks": "layers.0"}, "blocks='layers.0') is str; give a list"),
        ({"blocks": 3}, "blocks=3) is int; give a list"),
    ],
)
def test_what_is_of_another_kind_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        samestep.Model(**{"torch": build, **given})
    assert told in str(refused.value)


def test_what_is_right_is_taken() -> None:
    samestep.Model(torch=build, loss={"torch": build}, metric=lambda *_: 0.0, blocks=("a",), segments={"torch": build})
