"""Ranks that do not come together: told at once or within the deadline, the culprit named, nothing left running."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.judging.confounds import find_confounds
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.techniques import Techniques
from samestep.experiments.comparing.confound_report import circumstances
from tests.lent import LentLauncher
from tests.processes import descendants

pytestmark = pytest.mark.torch
Befall = Callable[..., RunResult]
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


@pytest.fixture(scope="module")
def faulty(launcher: Launcher) -> Launcher:
    launcher.warm(["torch"])
    return LentLauncher(launcher, "tests.torch_impl.fault_worker")


@pytest.fixture
def befall(faulty: Launcher, tmp_path: Path) -> Befall:
    def befall(fault: str, rank: int, strategy: str, environment: dict[str, str], **fields: object) -> RunResult:
        asked = RunConfig(strategy=strategy, workload="digits-mlp+width=32", devices=2, batch_size=48, steps=6)
        asked = dataclasses.replace(asked, parity=False, out=str(tmp_path / "run"), **fields)
        before = descendants()
        try:
            return faulty.run(
                parse(asked), launch_of(asked), environment={"FAULT": fault, "FAULT_RANK": str(rank), **environment}
            )
        finally:
            assert descendants() == before

    return befall


def seldom(*values: object) -> object:
    """A case that only `make test-slow` takes; most of these wait for a timeout."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("fault", "rank", "strategy", "timeout", "environment", "says"),
    [
        ("absent", 1, "ddp", 5.0, {}, "rank 1 did not join the 2 ranks at 127.0.0.1:"),
        seldom("absent", 0, "ddp", 5.0, {}, "rank-0 never started|rank 1 found no rank 0 at 127.0.0.1:"),
        ("nobody_answers", 1, "ddp", 5.0, {}, "rank 1 did not join the 2 ranks at 127.0.0.1:"),
        seldom("nobody_listens", 1, "fsdp", 5.0, {}, "rank 1 (did not join the 2 ranks|found no rank 0) at 127.0.0.1:"),
        ("port_taken", 0, "ddp", 20.0, {}, "rank 0 cannot listen at 127.0.0.1:[0-9]+: the port is taken"),
        (
            "given_another_run",
            1,
            "fsdp",
            20.0,
            {},
            "rank [01] was given another run than rank [01]: workload '[^,]*' instead of '[^,]*', seed [05] instead",
        ),
        ("other_shapes", 1, "c10d", 20.0, DETAIL, r"Detected mismatch between collectives on ranks. Rank [01] is"),
        seldom("hangs", 1, "c10d", 5.0, DETAIL, "Ranks 1 failed to pass monitoredBarrier"),
        ("hangs", 0, "ddp", 5.0, {}, "rank-0 made no progress"),
        seldom("hangs", 1, "fsdp", 5.0, {}, "rank-1 made no progress"),
        ("stopped", 1, "zero1", 5.0, {}, "rank-1 made no progress for 5 s; it is stopped"),
        seldom("stopped_between_steps", 0, "rpc", 5.0, {}, "rank-0 made no progress for 5 s; it is stopped"),
        ("stopped_between_steps", 1, "rpc_parameter_server", 5.0, {}, "rank-1 made no progress for 5 s; it is stopped"),
        ("killed", 1, "fsdp", 20.0, {}, "rank-1 was killed by SIGKILL"),
        ("killed", 0, "zero1", 20.0, {}, "rank-0 was killed by SIGKILL"),
    ],
)
def test_the_run_ends_in_time_and_names_the_rank(
    befall: Befall, fault: str, rank: int, strategy: str, timeout: float, environment: dict[str, str], says: str
) -> None:
    started = time.monotonic()
    with pytest.raises(WorkerFailed, match=says):
        befall(fault, rank, strategy, environment, timeout_seconds=timeout)
    assert time.monotonic() - started < timeout + 40


def test_a_late_rank_is_waited_for(befall: Befall) -> None:
    assert befall("late", 1, "ddp", {}, timeout_seconds=20.0).status == "trained"


def test_what_torch_2_13_compiles_in_a_timed_window_is_counted(befall: Befall) -> None:
    run = befall("compiles", 1, "ddp", {})
    assert run.conditions.compilations == 1
    assert "compilation" in [each.name for each in find_confounds(circumstances(run), circumstances(run))]


def test_evaluation_of_a_compiled_model_compiles_nothing(befall: Befall) -> None:
    run = befall("compiles_in_evaluation", 0, "ddp", {}, devices=1, techniques=Techniques(compile=True))
    assert run.metric_value is not None
