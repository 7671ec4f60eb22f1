"""The optimizer that a user's file builds with Keras: its own step in every row, or a line that says why not."""

from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from tests.conftest import RunCell

pytestmark = pytest.mark.tf
FOLDER = Path(__file__).parents[1] / "own"
REPLICATED = ("tf:mirrored", "tf:multi_worker_mirrored", "tf:parameter_server+parameter_servers=2")


def own(model: str) -> dict[str, str]:
    return {"model": f"{FOLDER / 'keras_optimizers.py'}:{model}", "data": f"{FOLDER / 'wild_losses.py'}:classes"}


SLOW = [
    *((cell, model) for cell in REPLICATED for model in ("AVERAGED", "SCHEDULED", "CENTERED", "CLIPPED")),
    ("tf:central_storage", "SCHEDULED"),
]


@pytest.mark.parametrize(
    ("cell", "model"),
    [
        ("tf:mirrored+accumulation_steps=2", "AVERAGED"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW),
    ],
)
def test_every_row_takes_its_step(run_cell: RunCell, cell: str, model: str) -> None:
    result = run_cell(cell, "digits-mlp", devices=2, dtype="float64", steps=6, **own(model))
    assert result.parity.passed, result.parity.reason
    held, predicted = (max(r.state_bytes for r in rows) for rows in (result.processes, result.predicted.footprints))
    assert held == predicted


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("CLIPPED_BY_ALL", "has Adam, which moves dense/kernel differently when it is given that parameter alone"),
        ("FACTORED", "has Adafactor, which keeps `kernel`, not shaped like its parameter: no row could gather it"),
        ("STARTED", "has Adagrad, whose `accumulator` does not start at zero"),
        ("NOTHING", "the function given as optimizer returned NoneType, not a Keras optimizer."),
        ("TORCH_ALONE", "has an optimizer for torch only; add one for tf"),
    ],
)
def test_what_no_row_could_take_is_refused_in_one_line(launcher: Launcher, model: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(launcher.describe(Cell.parse("tf:mirrored").apply_to(RunConfig(devices=2, **own(model)))))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
