"""A user's own Keras model: every strategy that can take it takes the steps of the model itself on one device."""

from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.arguments import apply_cell
from tests.conftest import RunCell

pytestmark = pytest.mark.tf
ZOO = Path(__file__).parents[1] / "own" / "keras_zoo.py"


def own(model: str) -> dict[str, str]:
    return {"model": f"{ZOO}:{model}", "data": f"{ZOO}:images"}


@pytest.mark.parametrize(
    "strategy", ["mirrored", "multi_worker_mirrored", "central_storage", "parameter_server", "tpu"]
)
def test_a_functional_cnn(run_cell: RunCell, strategy: str) -> None:
    result = run_cell(f"tf:{strategy}", "digits-mlp", devices=2, dtype="float64", **own("FUNCTIONAL"))
    assert result.parity.passed, result.parity.reason
    assert result.parity.reference == "tf:single"


def test_a_subclassed_model_in_float32(run_cell: RunCell) -> None:
    result = run_cell("tf:single", "digits-mlp", **own("SUBCLASSED"))
    assert result.parity.passed, result.parity.reason


def test_inputs_of_several_arrays(run_cell: RunCell) -> None:
    named = {"model": f"{ZOO}:MASKED", "data": f"{ZOO}:sentences"}
    result = run_cell("tf:mirrored", "digits-mlp", devices=2, dtype="float64", **named)
    assert result.parity.passed, result.parity.reason


def test_dtensor_is_refused_with_the_reason(launcher: Launcher) -> None:
    config = launcher.describe(apply_cell("tf:dtensor", RunConfig(devices=2, **own("FUNCTIONAL"))))
    with pytest.raises(
        ConfigError, match="needs variables with a layout, and the layers of keras_zoo:FUNCTIONAL make plain"
    ):
        parse(config)
