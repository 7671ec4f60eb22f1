"""What the seconds of a step go to: parts that add up, and what is planted is found in its part."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.step_parts import PARTS, AccountedSteps, StepParts, Thread, mean, read_threads, used
from tests.cells import SIZED
from tests.conftest import RunCell
from tests.lent import LentLauncher
from tests.one_batch_worker import FIND_PARTS

MS = 1_000_000


def whole(parts: StepParts) -> float:
    return sum(getattr(parts, name) or 0.0 for name in PARTS)


def window(waits: bool = True, devices: int = 1) -> AccountedSteps:
    """Two steps of 10 ms: the process took them, two threads of a pool computed, one of gRPC did something else."""
    threads = {
        1: Thread("python", 4 * MS, 2 * MS),
        2: Thread("tf_Compute", 5 * MS, 1 * MS),
        3: Thread("tf_Compute", 3 * MS, 1 * MS),
        4: Thread("grpcpp_sync_ser", 7 * MS, 0),
    }
    return AccountedSteps(0, 20 * MS, 2, threads, waits, devices)


def milliseconds(parts: StepParts) -> list[float | None]:
    return [None if (value := getattr(parts, name)) is None else pytest.approx(1000 * value) for name in PARTS]


def test_what_is_left_of_a_step_is_waiting_or_idle() -> None:
    """4 ms in the pool, 2 in Python, 1 + 1 without a core; 2 of the 10 are left."""
    assert milliseconds(window().parts_by_threads("tf_")) == [4, None, 2, 2, 2]
    assert milliseconds(window(waits=False).parts_by_threads("tf_")) == [4, None, 0, 4, 2]
    assert milliseconds(window(devices=2).parts_by_threads("tf_")) == [2, None, 4.5, 1.5, 2]
    assert milliseconds(window(waits=False).parts_by_threads()) == [2, None, 0, 8, 0]


def test_what_an_operator_had_no_core_for_is_idle() -> None:
    """The thread that takes the steps had a core two thirds of the time: of 3 ms in operators it computed in 2."""
    found = window().parts_by_operators(0.003, 0.0006, 0.0015, {1})
    assert milliseconds(found) == [1.6, 0.4, 10 - 2 - 1 - 1.5, 1.5, 1]


def test_no_part_is_more_than_what_the_others_leave() -> None:
    assert milliseconds(window().parts(0.006, 0.003, 0.004, 0.009)) == [6, 3, 0, 0, 1]
    assert milliseconds(window().parts(-1.0, 0.0, 0.004, 0.0)) == [0, 0, 6, 0, 4]


def test_parts_of_processes_are_joined_and_scaled_to_the_step() -> None:
    one, other = window().parts(0.006, 0.001, 0.002, 0.0), window().parts(0.002, 0.001, 0.002, 0.0)
    joined = mean([one, other], 0.02)
    assert milliseconds(joined) == [8, 2, 6, 0, 4]
    assert whole(joined) == pytest.approx(0.02) and joined.own_step_seconds == pytest.approx(0.01)


def test_the_kernel_says_what_this_thread_had(tmp_path: Path) -> None:
    before, start = read_threads(), time.thread_time_ns()
    while (spent := time.thread_time_ns() - start) < 20 * MS:
        pass
    found = used(before, read_threads())
    assert next(iter(found)) == os.getpid()
    assert sum(each.on_core_ns for each in found.values()) >= 0.8 * spent
    (tmp_path / "7").mkdir()
    (only,) = read_threads(tmp_path).values()
    assert only.on_core_ns > 0 and only.ready_ns == 0, "a kernel without these accounts"


# --- of runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def planted(launcher: Launcher) -> Callable[[str], StepParts]:
    lent = LentLauncher(launcher, "tests.common.runtime.step_parts_worker")

    def run(part: str) -> StepParts:
        config = RunConfig(strategy="c10d", workload=SIZED["mlp"], devices=2, batch_size=48, steps=10, parity=False)
        result = lent.run(parse(config), launch_of(config), environment={"PART": part, FIND_PARTS: "1"})
        assert result.step_parts is not None
        assert whole(result.step_parts) == pytest.approx(result.step_seconds_median)
        return result.step_parts

    return run


@pytest.mark.torch
@pytest.mark.parametrize("part", ["waiting", "computing", "python"])
def test_what_is_planted_is_found_in_its_part(planted: Callable[[str], StepParts], part: str) -> None:
    """A busy machine makes a step idle, and one rank wait for the other, so these are no part of what a core was used for."""
    found = planted(part)
    used_core = found.computing_seconds + (found.update_seconds or 0.0) + found.python_seconds
    assert getattr(found, f"{part}_seconds") > (used_core if part == "waiting" else 0.5 * used_core), found


@pytest.mark.tf
@pytest.mark.slow
def test_tensorflow_has_no_part_for_its_update(run_cell: RunCell) -> None:
    for cell, waits in (("tf:mirrored", False), ("tf:multi_worker_mirrored", True)):
        result = run_cell(cell, SIZED["mlp"], devices=2, steps=40, parts=True)
        parts = result.step_parts
        assert parts is not None and parts.update_seconds is None and parts.computing_seconds > 0
        assert parts.steps > 1 and whole(parts) == pytest.approx(result.step_seconds_median)
        assert waits or parts.waiting_seconds == 0


@pytest.mark.tf
@pytest.mark.slow
def test_where_servers_compute_nobody_can_say(run_cell: RunCell) -> None:
    result = run_cell("tf:parameter_server", SIZED["mlp"], devices=2, parts=True)
    assert result.step_parts is None and "serve" in result.no_parts
