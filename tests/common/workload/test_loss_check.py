"""Which dim of a user's outputs has the classes: by their shape and the targets', or the file has to say so."""

import numpy as np
import pytest

import samestep
from samestep.common.errors import ConfigError
from samestep.common.workload.models.loss_check import find_loss

FIRST, LAST = "cross_entropy_classes_first", "cross_entropy_classes_last"


def found(loss: str, outputs: tuple[int, ...], targets: tuple[int, ...]) -> tuple[str, int | None]:
    model = samestep.Model(torch=lambda: None, loss=loss)
    loss_of = find_loss(model, "net.py:model", np.zeros(outputs), None, np.zeros(targets, int), targets[0])
    return loss_of.name, loss_of.classes


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "name", "classes"),
    [
        ("cross_entropy", (2, 5, 7), (2, 5), "cross_entropy", 7),
        ("cross_entropy", (2, 7, 5), (2, 5), FIRST, 7),
        ("cross_entropy", (2, 3, 4, 4), (2, 4, 4), FIRST, 3),
        ("cross_entropy", (2, 2), (2,), "cross_entropy", 2),
        (FIRST, (2, 5, 5), (2, 5), FIRST, 5),
        (LAST, (2, 5, 5), (2, 5), "cross_entropy", 5),
    ],
)
def test_shapes_or_the_file_say_where_the_classes_are(
    loss: str, outputs: tuple[int, ...], targets: tuple[int, ...], name: str, classes: int
) -> None:
    assert found(loss, outputs, targets) == (name, classes)


@pytest.mark.parametrize("outputs", [(2, 5, 5), (2, 5, 5, 5)])
def test_outputs_that_fit_both_are_refused_with_both_names(outputs: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"second dim or the last; say loss='{FIRST}' or loss='{LAST}'"):
        found("cross_entropy", outputs, outputs[:-1])


def test_a_declared_place_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"classes_last takes outputs \[..., classes\] and whole targets"):
        found(LAST, (2, 3, 4, 4), (2, 4, 4))
