"""DeepSpeed's ZeRO: the same step at every stage, a state for everybody, and what it says where it is missing."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from samestep.common.catalog import framework_info
from samestep.common.cell import Cell
from samestep.common.costs.deepspeed import deepspeed
from samestep.common.errors import ConfigError
from samestep.common.judging.parity import LOSS_BOUND
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.state_file import read_state
from samestep.common.techniques import Techniques
from samestep.common.workload.models.spec import num_params
from samestep.experiments.cli.command_line import parse_run
from tests.cells import SIZED
from tests.conftest import RunCell
from tests.torch_impl.ledgers import bytes_of, obeys_its_law

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
STAGES = [1, 2, 3]
UNEVEN = "digits-mlp+width=33"
"""Hardly a tensor of it cuts evenly in two or three."""
FAST = {("mlp", 1), ("transformer", 2), ("ranker", 3)}


def row(stage: int) -> str:
    return f"torch:deepspeed+zero_stage={stage}"


def cells() -> list[object]:
    every = [(model, stage, optimizer) for model in SIZED for stage in STAGES for optimizer in ("sgd", "adamw")]
    return [
        pytest.param(*cell, marks=() if cell[:2] in FAST and cell[2] == "adamw" else pytest.mark.slow) for cell in every
    ]


@pytest.mark.parametrize(("model", "stage", "optimizer"), cells())
def test_every_stage_is_the_same_step(run_cell: RunCell, model: str, stage: int, optimizer: str) -> None:
    result = run_cell(row(stage), SIZED[model], devices=2, optimizer=optimizer)
    assert result.parity.passed, result.parity.reason
    assert result.parity.steps == 6
    obeys_its_law(result)


@pytest.mark.parametrize("stage", [*(pytest.param(stage, marks=pytest.mark.slow) for stage in STAGES[:-1]), STAGES[-1]])
def test_micro_batches_and_clipping_are_the_same_step(run_cell: RunCell, stage: int) -> None:
    techniques = Techniques(accumulation_steps=2, clip_norm=0.05)
    result = run_cell(row(stage), UNEVEN, devices=3, optimizer="adamw", techniques=techniques)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)


@pytest.mark.parametrize(
    ("stage", "devices"),
    [(3, 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((3, 4), (3, 1), (1, 1)))],
)
def test_any_number_of_devices_is_the_same_step(run_cell: RunCell, stage: int, devices: int) -> None:
    result = run_cell(row(stage), SIZED["mlp"], devices=devices, optimizer="sgd")
    assert result.parity.passed, result.parity.reason
    assert result.versions["deepspeed"] == importlib.metadata.version("deepspeed")
    obeys_its_law(result)


def test_what_the_law_says_each_stage_keeps() -> None:
    """The last rank of two, in the model's parameters: at rest, at the peak, gradients, AdamW's slots."""
    shares = {}
    asked = RunConfig(workload=SIZED["mlp"], devices=2, optimizer="adamw", batch_size=48)
    for stage in STAGES:
        run = parse(Cell.parse(row(stage)).apply_to(asked))
        kept = bytes_of(deepspeed(run, "gloo").devices())[1]
        shares[stage] = [round(size / 4 / num_params(run.workload.model), 1) for size in kept]
    assert shares == {1: [1.5, 1.5, 0.5, 1.0], 2: [1.5, 1.5, 0.5, 1.0], 3: [1.0, 1.9, 0.5, 1.0]}


# --- state ------------------------------------------------------------------------------------------------------------

TOUR = [("torch:ddp", 2), (row(3), 3), (row(1), 2), (row(2), 3), ("torch:ddp", 2)]
STEPS = 2


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("sgd", marks=pytest.mark.slow)])
def test_a_state_goes_from_anywhere_to_anywhere(run_cell: RunCell, tmp_path: Path, optimizer: str) -> None:
    shared = {"workload": UNEVEN, "optimizer": optimizer, "parity": False, "keep_state": True}
    last = STEPS * len(TOUR)
    oracle = str(tmp_path / "oracle")
    wanted = run_cell("numpy:oracle", steps=last, out=oracle, dtype="float64", **shared).losses
    losses: list[float] = []
    for leg, (place, devices) in enumerate(TOUR):
        out, start = str(tmp_path / str(leg)), str(tmp_path / str(leg - 1)) if leg else None
        result = run_cell(place, devices=devices, steps=STEPS * (leg + 1), out=out, start_from=start, **shared)
        assert result.first_step == STEPS * leg
        losses += result.losses
        np.testing.assert_allclose(losses, wanted[: len(losses)], rtol=LOSS_BOUND["float32"], atol=0, err_msg=place)
    reached, right = read_state(tmp_path / str(len(TOUR) - 1)), read_state(tmp_path / "oracle")
    assert reached.step == right.step == last
    for name, value in right.params.items():
        np.testing.assert_allclose(reached.params[name], value, rtol=0, atol=1e-6)
        for slot, values in right.slots.items():
            np.testing.assert_allclose(reached.slots[slot][name], values[name], rtol=1e-3, atol=1e-7, err_msg=name)


# --- bad input, and a machine without it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--zero-stage 4", "unknown zero stage '4'. Choose from: 1, 2, 3."),
        ("--zero-stage two", "unknown zero stage 'two'. Choose from: 1, 2, 3."),
        ("--dtype float64", "torch:deepspeed trains in float32, not in float64; give --dtype float32."),
        ("--mesh shard=2", "unknown mesh axis 'shard'"),
    ],
)
def test_a_wrong_request_is_one_line(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(parse_run(["--strategy", "deepspeed", *line.split()], "run"))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


WITHOUT = """
    import importlib.util as util, sys
    real = util.find_spec
    util.find_spec = lambda name, *rest: None if name == "deepspeed" else real(name, *rest)
    from samestep.experiments import compare, run, strategies
    from samestep.experiments.cli.ending import run_command
"""
INSTALL = "deepspeed is not installed: pip install 'samestep[deepspeed]'"


def told(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", textwrap.dedent(WITHOUT) + script, *arguments]
    wide = os.environ | {"COLUMNS": "200"}  # readline, which pytest imports, sets it for children where there is a TERM
    return subprocess.run(line, cwd=ROOT, env=wide, capture_output=True, text=True, timeout=60, check=False)


def test_without_the_package_a_run_is_unavailable() -> None:
    done = told("run_command(run.main)", "--strategy", "deepspeed", "--devices", "2")
    assert done.returncode == 3, done.stderr
    assert done.stderr.strip().endswith(INSTALL)
    assert "Traceback" not in done.stderr


def test_without_the_package_a_comparison_says_so(tmp_path: Path) -> None:
    arguments = ["--strategies", "torch:deepspeed", "--steps", "2", "--out", str(tmp_path / "compared")]
    done = told("run_command(compare.main)", *arguments)
    assert done.returncode == 3, done.stderr
    assert f"torch:deepspeed was unavailable: {INSTALL}" in done.stdout
    assert done.stderr.splitlines()[-1] == f"samestep: torch:deepspeed was unavailable: {INSTALL}"


def test_without_the_package_the_overview_says_so() -> None:
    done = told("run_command(strategies.main)", "torch:deepspeed")
    assert done.returncode == 0, done.stderr
    assert INSTALL in done.stdout


def test_no_other_rows_workers_have_it(run_cell: RunCell, launcher: Launcher) -> None:
    """Its import takes seconds: a fork server of its own has done it once, and forks no worker of another row."""
    for cell in (row(1), "torch:ddp"):
        run_cell(cell, SIZED["mlp"], devices=2, steps=2, parity=False)
    assert {package for framework, _, package in launcher._servers if framework == "torch"} >= {"", "deepspeed"}


def test_no_other_row_imports_it() -> None:
    others = [f"samestep.torch_impl.strategies.{name}" for name in ("zero1", "fsdp")]
    names = [*framework_info("torch").preload, *others]
    look = f"import importlib; [importlib.import_module(name) for name in {names!r}]"
    done = told(f"{look}; print('deepspeed' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (2, 3, 4), (3, 1, 2)])
def test_boxes_of_a_stretch_are_its_numbers_in_their_order(shape: tuple[int, ...]) -> None:
    from samestep.torch_impl.deepspeed.partitions import boxes

    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    for start in range(array.size + 1):
        for stop in range(start, array.size + 1):
            cut = list(boxes(shape, start, stop))
            inside = [tuple(slice(at, at + size) for at, size in zip(*box, strict=True)) for box in cut]
            assert [n for box in inside for n in array[box].ravel().tolist()] == list(range(start, stop))
            assert all(array[box].shape == sizes for box, (_, sizes) in zip(inside, cut, strict=True))
            assert len(cut) <= 2 * max(1, len(shape))
