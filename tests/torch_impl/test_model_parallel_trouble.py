"""What goes wrong in a model that is split: told in one line that names the culprit, and no process is left."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Unavailable, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.techniques import Techniques
from tests.cells import SIZED
from tests.lent import LentLauncher
from tests.processes import alive

pytestmark = pytest.mark.torch

# --- refused before anything starts -----------------------------------------------------------------------------------


def refused(cell: str, workload: str, **fields: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(Cell.parse(cell).apply_to(RunConfig(workload=workload, **{"batch_size": 48, **fields})))
    return str(caught.value)


def test_micro_batches_that_do_not_divide() -> None:
    told = refused("torch:pp+microbatches=5", SIZED["mlp"], devices=2)
    assert (
        told
        == "48 examples do not divide into 5 micro-batches; use --microbatches with one of 1, 2, 3, 4, 6, 8, 12, 16, 24, 48."
    )
    told = refused("torch:hybrid+microbatches=7", SIZED["mlp"], mesh="pipe=2,data=2")
    assert (
        told
        == "24 examples do not divide into 7 micro-batches; use --microbatches with one of 1, 2, 3, 4, 6, 8, 12, 24."
    )
    assert refused("torch:pp+microbatches=0", SIZED["mlp"], devices=2) == (
        "--microbatches is 0; give a whole number from 1 up."
    )


@pytest.mark.parametrize("cell", ["torch:mp", "torch:pp", "torch:rpc", "torch:hybrid"])
def test_more_stages_than_segments(cell: str) -> None:
    told = refused(cell, SIZED["cnn"], devices=8)
    assert "8 stages are more than the 4 segments of mnist-cnn+filters=4+hidden=16 (blocks/0, blocks/1, ...)" in told
    assert "use 4 ranks or fewer" in told


def test_two_stages_a_rank_count_twice() -> None:
    told = refused("torch:pp+schedule=zbv_zero_bubble", SIZED["cnn"], devices=4)
    assert "8 stages (2 a rank) are more than the 4 segments" in told
    assert "use 2 ranks or fewer" in told


def test_a_tensor_axis_that_does_not_divide_the_heads() -> None:
    told = refused("torch:tp", "prose-gpt+heads=4+width=48", devices=3)
    assert (
        told == "4 heads do not divide among a tensor axis of 3; use one that divides 4, or another number of +heads=."
    )
    assert "equal parts" in refused("torch:tp", "digits-mlp+width=32", devices=3)
    assert "3" in refused("torch:hybrid", "digits-mlp+width=32", mesh="pipe=2,tensor=3")


def test_sequence_parallel_without_a_sequence() -> None:
    assert "needs a transformer" in refused("torch:tp+sequence_parallel=true", SIZED["mlp"], devices=2)


def test_fewer_micro_batches_than_a_schedule_keeps_busy() -> None:
    told = refused("torch:pp+schedule=1f1b+microbatches=2", SIZED["cnn"], devices=4)
    assert "1f1b keeps 4 stages busy with a micro-batch each; --microbatches 2 is fewer: give 4 or more" in told
    told = refused("torch:pp+schedule=dualpipev+microbatches=3", SIZED["mlp"], devices=2)
    assert "give 4 or more" in told


def test_rounds_that_do_not_divide() -> None:
    told = refused("torch:pp+schedule=interleaved_1f1b+microbatches=5", SIZED["mlp"], devices=2, batch_size=50)
    assert told == (
        "interleaved_1f1b takes its micro-batches in 2 equal rounds of at least 2; --microbatches 5 does not divide by 2: "
        "use 4."
    )


def test_an_unknown_choice_names_the_nearest() -> None:
    told = refused("torch:pp+schedule=1f1f", SIZED["mlp"], devices=2)
    assert told.startswith("unknown schedule '1f1f'. Did you mean '1f1b'?")
    told = refused("torch:rpc_parameter_server+consistency=asink", SIZED["mlp"], devices=2)
    assert told.startswith("unknown consistency 'asink'. Did you mean 'async'?")


@pytest.mark.parametrize("cell", ["torch:rpc", "torch:rpc_parameter_server"])
def test_clipping_where_no_process_sees_the_whole_gradient(cell: str) -> None:
    assert "does not take --clip-norm" in refused(cell, SIZED["mlp"], devices=2, techniques=Techniques(clip_norm=1.0))


# --- happens while it runs --------------------------------------------------------------------------------------------

Fail = Callable[..., str]


@pytest.fixture(scope="module")
def troubled(launcher: Launcher) -> Launcher:
    launcher.warm(["torch"])
    return LentLauncher(launcher, "tests.torch_impl.pipeline_worker")


def _started(launcher: Launcher) -> set[int]:
    return {pid for server in launcher._servers.values() for pid in server.pids.values()}


@pytest.fixture
def fail(troubled: Launcher, tmp_path: Path) -> Fail:
    """Runs a cell to which something happens; returns what is told of it. No process may be left, nor a run that says nothing."""

    def fail(trouble: str, cell: str, seconds: float, **fields: object) -> str:
        fields = {"batch_size": 48, "steps": 20, "timeout_seconds": 20.0, "parity": False, **fields}
        asked = Cell.parse(cell).apply_to(RunConfig(workload=SIZED["mlp"], out=str(tmp_path / "run"), **fields))
        before, start = _started(troubled), time.monotonic()  # their numbers may by now be those of other processes
        with pytest.raises((WorkerFailed, Unavailable)) as caught:
            troubled.run(parse(asked), launch_of(asked), environment={"TROUBLE": trouble})
        assert time.monotonic() - start < seconds
        assert (tmp_path / "run" / "error.json").exists()
        assert not alive(_started(troubled) - before)
        return str(caught.value)

    return fail


def test_a_stage_that_dies_mid_schedule(fail: Fail) -> None:
    told = fail("second_rank_is_killed", "torch:pp+schedule=1f1b", 60, devices=3)
    assert told.startswith("rank-1 was killed by SIGKILL (phase: train")


def test_eight_processes_where_memory_is_short(fail: Fail) -> None:
    told = fail("sixth_rank_has_no_memory", "torch:hybrid", 60, mesh="pipe=2,data=2,tensor=2")
    needs = "on each device parameters, gradients and optimizer state alone need"
    assert re.match(
        rf"rank-5 ran out of memory: {needs} \S+ MiB, in addition to the framework itself; allow more, or choose", told
    )


@pytest.mark.parametrize("cell", ["torch:rpc", "torch:rpc_parameter_server"])
def test_an_rpc_worker_that_never_comes(fail: Fail, cell: str) -> None:
    told = fail("second_rank_never_comes", cell, 60, devices=2, timeout_seconds=4.0)
    alone = "rank-1 (never started|is stopped, as by SIGSTOP)"
    waited = "(rank-0|server-0|rank-2) ended with exit code 1: rank 1 did not join the [23] ranks"
    assert re.match(f"{alone}|{waited}", told), told  # whoever of those who wait speaks first


def test_a_server_that_dies(fail: Fail) -> None:
    told = fail("server_is_killed", "torch:rpc_parameter_server", 60, devices=2)
    assert told.startswith("server-0 was killed by SIGKILL"), told
