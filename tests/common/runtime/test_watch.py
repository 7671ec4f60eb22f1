"""The watch over a run, in one process: files as workers leave them, and a fork server that only pretends."""

import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import open_run, read_error, write_error
from samestep.common.runtime.fork_protocol import Reply
from samestep.common.runtime.parent.processes.crash_report import ending, last_lines
from samestep.common.runtime.parent.processes.following import Heartbeats, StepTail
from samestep.common.runtime.parent.processes.memory_kills import MemoryKills
from samestep.common.runtime.parent.processes.watch import ProcessWatch
from samestep.common.runtime.process_file import DONE, ProcessFile, read_measured
from samestep.common.runtime.stack_dumps import DUMP_SIGNAL
from samestep.common.steps.log import METRICS
from samestep.common.strategy import ProcessSpec

WORK = '  File "/repo/common/runtime/worker/worker.py", line 51 in main\n'
WAITS = '  File "/env/site-packages/torch/distributed/c10d.py", line 9 in all_reduce\n' + WORK
HANGS = '  File "/repo/common/workload/data/dataset.py", line 12 in load\n' + WORK


@dataclasses.dataclass
class Pretended:
    """What a watch asks of a fork server.

    Attributes:
        logs: Worker number -> its log.
        stacks: Worker number -> the stack it writes when it is asked; others do not answer.
        stopped: The workers that are stopped.
        sent: The workers that were sent signals, and which.
        happens: Called at every poll, with the seconds since the first one; returns how workers ended.
        obeys: Whether it does what it is told.
    """

    logs: Mapping[int, Path]
    stacks: Mapping[int, str] = dataclasses.field(default_factory=dict)
    stopped: tuple[int, ...] = ()
    sent: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    happens: Callable[[float], list[Reply]] = lambda seconds: []
    began: float = dataclasses.field(default_factory=time.monotonic)
    obeys: bool = True

    def close(self) -> None:
        self.sent.append((0, 0))

    def poll(self, seconds: float) -> list[Reply]:
        time.sleep(0.02)
        return self.happens(time.monotonic() - self.began)

    def signal_worker(self, number: int, signal_number: int) -> None:
        self.sent.append((number, signal_number))
        if signal_number == DUMP_SIGNAL and number in self.stacks:
            with self.logs[number].open("a") as log:
                log.write(f"Thread 0x01 (most recent call first):\n{self.stacks[number]}")

    def is_stopped(self, number: int) -> bool:
        return number in self.stopped

    def ending(self, number: int, code: int) -> str:
        return ending(code)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ProcessWatch]:
    """Makes a watch over two ranks in training."""
    for name in ("GRACE_SECONDS", "STOP_SECONDS", "KILL_SECONDS", "DUMP_SECONDS"):
        monkeypatch.setattr(f"samestep.common.runtime.parent.processes.watch.{name}", 0.05)

    def watched(name: str = "run", independent: bool = False, **server: object) -> ProcessWatch:
        directory = open_run(tmp_path / name, RunConfig())
        specs = {number: ProcessSpec(f"rank-{number}", {}) for number in (0, 1)}
        for number, spec in specs.items():
            ProcessFile(directory, spec.role, number).enter("train", 7)
        logs = {number: directory / f"{spec.role}.log" for number, spec in specs.items()}
        return ProcessWatch(directory, "torch", 0.3, Pretended(logs, **server), specs, None, independent)

    return watched


def told(watch: ProcessWatch) -> str:
    with pytest.raises(WorkerFailed) as caught:
        watch.wait()
    return str(caught.value)


# --- who is named -----------------------------------------------------------------------------------------------------


def test_what_does_not_answer_outranks_what_is_busy(watched: Callable[..., ProcessWatch]) -> None:
    assert told(watched(stacks={0: HANGS})).startswith("rank-1 made no progress for 0.3 s; give more time")


def test_a_stopped_process_is_told_as_such(watched: Callable[..., ProcessWatch]) -> None:
    assert told(watched(stopped=(1,))).startswith("rank-1 made no progress for 0.3 s; it is stopped, as by SIGSTOP")


def test_a_stopped_process_gets_no_more_time_in_its_first_step(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(stopped=(1,))
    for number in (0, 1):
        ProcessFile(watch.directory, f"rank-{number}", number).enter("first step")
    assert told(watch).startswith("rank-1 made no progress for 0.3 s; it is stopped, as by SIGSTOP (phase: first step")


def test_a_stopped_process_is_not_asked_to_end_first(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(stopped=(1,))
    watch.stop()
    assert watch.server.sent[:2] == [(0, signal.SIGTERM), (1, signal.SIGKILL)]


def test_a_server_that_does_not_obey_is_ended_with_all_its_workers(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(obeys=False)
    began = time.monotonic()
    watch.stop()
    assert watch.server.sent == [(0, 0)]
    assert time.monotonic() - began < 0.05


def test_a_process_that_leaves_early_has_not_done_its_part(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(happens=lambda seconds: [{"ended": 1, "code": 0}])
    assert told(watch).startswith("rank-1 ended with exit code 0 before its part was done (phase: train, step 7)")


def test_a_process_that_ends_has_reached_the_step_that_its_peer_or_the_log_shows(
    watched: Callable[..., ProcessWatch],
) -> None:
    died = {"happens": lambda seconds: [{"ended": 1, "code": -9}]}
    for beats, independent, step in ((7, False, 12), (20, False, 20), (20, True, 7)):
        watch = watched(f"run-{beats}-{independent}", independent, **died)
        ProcessFile(watch.directory, "rank-0", 0).enter("train", beats)
        (watch.directory / METRICS).write_text('{"step": 12, "losses": [0.5], "seconds": 0.1}\n')
        assert told(watch).startswith(f"rank-1 was killed by SIGKILL (phase: train, step {step})")


def test_a_peer_that_loses_patience_with_a_stopped_process_is_not_named(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(stopped=(1,), happens=lambda seconds: [{"ended": 0, "code": 1}])
    write_error(watch.directory, "rank-0", RuntimeError("UnavailableError: connection reset"))
    assert told(watch).startswith("rank-1 is stopped, as by SIGSTOP (phase: train, step 7)")


def test_a_killed_process_outranks_a_stopped_one(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(stopped=(1,), happens=lambda seconds: [{"ended": 0, "code": -9}])
    assert told(watch).startswith("rank-0 was killed by SIGKILL")


def test_watching_takes_no_core(watched: Callable[..., ProcessWatch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pretended, "poll", lambda self, seconds: time.sleep(seconds) or [])
    watch = watched()
    watch.timeout_seconds = 3.0
    began, used = time.monotonic(), time.process_time()
    told(watch)
    assert time.process_time() - used < 0.01 * (time.monotonic() - began)


def test_what_tensorflow_always_prints_is_no_last_word() -> None:
    noise = (
        "I0000 00:00:1795332212.180472   25659 port.cc:153] oneDNN custom operations are on.\n"
        "E0000 00:00:1795332219.918060   25659 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error\n"
    )
    assert last_lines(noise) == ""
    assert last_lines(f"one\ntwo\n{noise}three\n", 2) == "\n    two\n    three"


# --- ranks that do not wait for each other ----------------------------------------------------------------------------


def steps_on(watch: ProcessWatch, until: float) -> None:
    """Rank 0 makes progress for so long, and ends well then."""
    file = ProcessFile(watch.directory, "rank-0", 0, beat_seconds=0.0)

    def happens(seconds: float) -> list[Reply]:
        file.beat(int(seconds * 100))
        if seconds < until:
            return []
        for number in (0, 1):
            ProcessFile(watch.directory, f"rank-{number}", number).enter(DONE)
        return [{"ended": 0, "code": 0}, {"ended": 1, "code": 0}]

    watch.server.happens = happens


def test_a_rank_that_hangs_alone_has_a_deadline_of_its_own(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(independent=True, stacks={0: WAITS, 1: HANGS})
    steps_on(watch, 60.0)
    started = time.monotonic()
    assert told(watch).startswith("rank-1 made no progress for 0.3 s")
    assert time.monotonic() - started < 30


def test_a_rank_that_waits_for_a_slow_one_is_left_alone(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(independent=True, stacks={0: HANGS, 1: WAITS})
    steps_on(watch, 1.0)
    watch.wait()


def test_ranks_that_wait_for_each_other_share_a_deadline(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched(stacks={0: WAITS, 1: HANGS})
    steps_on(watch, 1.0)
    watch.wait()


# --- time in which nobody could do anything ---------------------------------------------------------------------------


def test_the_time_of_a_suspended_machine_is_no_silence(tmp_path: Path) -> None:
    now = [100.0]
    heartbeats = Heartbeats(tmp_path, lambda: now[0])
    ProcessFile(tmp_path, "rank-0", 0).enter("train", 7)

    def silent(seconds: float) -> float:
        now[0] += seconds
        return round(heartbeats.take({0: "rank-0"})[0].silent_seconds, 6)

    assert [silent(0.2), silent(0.2), silent(3600.0), silent(0.2)] == [0.0, 0.2, 0.2, 0.4]
    os.utime(tmp_path / "process-rank-0.json", (1, 1))  # any change is a sign of life: clocks may be set
    assert [silent(0.2), silent(1.5)] == [0.0, 1.5]
    assert heartbeats.step == 7


# --- what others did to the directory ---------------------------------------------------------------------------------


def test_a_run_directory_that_was_removed_is_told(watched: Callable[..., ProcessWatch]) -> None:
    watch = watched()

    def removed(seconds: float) -> list[Reply]:
        if seconds < 0.2:
            return []
        shutil.rmtree(watch.directory, ignore_errors=True)
        return [{"ended": 0, "code": 1}]

    watch.server.happens = removed
    assert told(watch) == f"{watch.directory} was removed while the run was at step 7"


@pytest.mark.parametrize("garbage", ["", "{", "[]", "3", '{"role": 1}', '{"role": "rank-0", "type": "?"}', None])
def test_an_error_is_told_whatever_became_of_its_file(
    watched: Callable[..., ProcessWatch], garbage: str | None
) -> None:
    watch = watched(happens=lambda seconds: [{"ended": 0, "code": 1}])
    path = watch.directory / "error.json"
    path.unlink() if garbage is None else path.write_text(garbage)
    assert read_error(watch.directory) is None
    write_error(watch.directory, "rank-0", RuntimeError("the device fell off the bus"))
    assert told(watch).startswith(
        "rank-0 ended with exit code 1: RuntimeError: the device fell off the bus (phase: train"
    )
    path.write_text(garbage or "")
    watch.codes.clear()
    assert told(watch).startswith("rank-0 ended with exit code 1 (phase: train, step 7)")


def test_a_finished_run_gets_no_error(tmp_path: Path) -> None:
    (tmp_path / "result.json").touch()
    write_error(tmp_path, "rank-0", RuntimeError("too late"))
    assert not (tmp_path / "error.json").exists()


@pytest.mark.parametrize("garbage", ["x\n", "{}\n", "[]\n"])
def test_damaged_metrics_are_named(watched: Callable[..., ProcessWatch], garbage: str) -> None:
    watch = watched()
    watch.progress = lambda step, losses, seconds: None
    watch.server.happens = lambda seconds: (watch.directory / "metrics.jsonl").write_text(garbage) * []
    assert told(watch).startswith(f"{watch.directory}/metrics.jsonl is damaged; the run was at step ")


@pytest.mark.parametrize("garbage", ["x", "[]", '{"phase": "done", "step": null}', None])
def test_damaged_measurements_are_named(tmp_path: Path, garbage: str | None) -> None:
    if garbage is not None:
        (tmp_path / "process-rank-0.json").write_text(garbage)
    with pytest.raises(WorkerFailed, match=r"rank-0 took all its steps, but .*process-rank-0.json"):
        read_measured(tmp_path, "rank-0")


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            {"memory.events": "low 0\noom 0\noom_kill 2\n", "memory.max": "536870912\n"},
            {"memory.events": "low 0\noom 1\noom_kill 3\n"},
            "for lack of memory at 512 MiB",
        ),
        (
            {"memory.oom_control": "under_oom 0\noom_kill 0\n", "memory.limit_in_bytes": "268435456\n"},
            {"memory.oom_control": "under_oom 0\noom_kill 1\n"},
            "for lack of memory at 256 MiB",
        ),
        (
            {"memory.events": "oom_kill 2\n", "memory.max": "max\n"},
            {"memory.events": "oom_kill 3\n"},
            "for lack of memory",
        ),
        ({"memory.events": "oom_kill 2\n"}, {}, ""),
        (
            {},
            {
                "kmsg": "3,1,2;Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:1048576kB, file-rss:0kB\n"
            },
            "for lack of memory at 1024 MiB",
        ),
        ({}, {"kmsg": "3,1,2;Out of memory: Killed process 47 (python) anon-rss:1048576kB\n"}, ""),
        ({"kmsg": "3,1,2;Out of memory: Killed process 4711 (python) anon-rss:1048576kB\n"}, {}, ""),
    ],
)
def test_a_kill_for_want_of_memory(
    tmp_path: Path, before: Mapping[str, str], after: Mapping[str, str], said: str
) -> None:
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    kills = MemoryKills(tmp_path, tmp_path / "kmsg")
    for name, text in after.items():
        (tmp_path / name).write_text(text)
    assert kills.explain(4711) == said


@pytest.mark.parametrize("error", [FileNotFoundError, ValueError])
def test_an_error_of_the_progress_function_is_no_damage_of_the_log(tmp_path: Path, error: type[Exception]) -> None:
    def fail(step: int, losses: list[float], seconds: float) -> None:
        raise error

    tail = StepTail(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "losses": [0.5], "seconds": 0.1}\n')
    with pytest.raises(error):
        tail.show(fail, 1)
