"""The loop takes long windows in parts: it reports soon, stops soon, and holds little; short ones it takes whole."""

import dataclasses
import json
import math
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from samestep.common.batch import Batch, batches
from samestep.common.cell import Cell
from samestep.common.errors import Diverged
from samestep.common.judging.percentiles import percentile
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.worker import loop
from samestep.common.runtime.worker.loop import train
from samestep.common.runtime.worker.step_log import RunLog
from samestep.common.runtime.worker.traffic import Traffic
from samestep.common.runtime.worker.windows import Windows
from samestep.common.steps.log import read_log
from samestep.common.workload.data.dataset import Split
from tests.lent import LentLauncher


@dataclasses.dataclass
class Sleeper:
    """A program that takes its time over a step and learns nothing.

    Attributes:
        seconds: Of a step.
        diverges_at: The step whose loss is not a number.
        agreed: What all processes agree that a part took, instead of what it took here.
        ahead: Whether a step returns before it is done, as on a GPU.
    """

    seconds: float = 0.0
    diverges_at: int = -1
    agreed: float | None = None
    ahead: bool = False
    steps: int = 0
    asked: int = 0
    unread: list[float] = dataclasses.field(default_factory=list)

    def step(self, batch: Batch) -> None:
        self.asked += 1
        if not self.ahead:
            self.sync()
        self.unread.append(math.nan if self.steps == self.diverges_at else 0.5)
        self.steps += 1

    def losses(self) -> list[float]:
        taken, self.unread = self.unread, []
        return taken

    def agree(self, value: float) -> float:
        return value if self.agreed is None else self.agreed

    def sync(self) -> None:
        if self.seconds and self.asked:
            time.sleep(self.asked * self.seconds)
        self.asked = 0


def trained(
    program: Sleeper, steps: int, path: Path, drawn: list[int] | None = None, traffic: Traffic | None = None
) -> Windows:
    data = np.zeros((8, 1))
    file = ProcessFile(path, "rank-0", 0)

    def stream() -> Iterator[Batch]:
        for batch in batches(data, data, 4, seed=0):
            if drawn is not None:
                drawn.append(batch.step - program.steps)
            yield batch

    config = RunConfig("numpy", "oracle", "synthetic-mlp", dtype="float64", steps=steps)
    run = parse(config)
    with RunLog(path, run, launch_of(config), Split(data, data, data, data)) as log:
        return train(program, run, stream(), 0, file, traffic or Traffic(file, {}), log)


def parts(path: Path) -> list[int]:
    """The steps of each line of the metrics."""
    return [len(json.loads(line)["losses"]) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_short_run_reports_once_a_window(tmp_path: Path) -> None:
    windows = trained(Sleeper(), 201, tmp_path)
    assert windows.steps == parts(tmp_path) == [1] + [10] * 20
    assert len(windows.losses) == 201


def test_a_long_run_has_as_many_windows_and_reports_in_parts(tmp_path: Path) -> None:
    drawn: list[int] = []
    windows = trained(Sleeper(), 50_001, tmp_path, drawn)
    assert windows.steps == [1] + [2500] * 20
    assert parts(tmp_path) == [1] + [1000, 1000, 500] * 20
    assert max(drawn) == loop.MOST_STEPS - 1, "batches are drawn part by part"


def test_another_attempt_continues_the_log(tmp_path: Path) -> None:
    trained(Sleeper(), 21, tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(before[:-10])  # it was killed while it wrote the last line
    trained(Sleeper(), 21, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(before[: before[:-1].rfind(b"\n") + 1])
    log = read_log(tmp_path)
    assert [step.number for step in log.steps()] == [*range(21)]
    assert {window.attempt for window in log.windows} == {2}


def test_slow_steps_are_reported_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_SECONDS", 0.05)
    windows = trained(Sleeper(seconds=0.01), 61, tmp_path)
    assert windows.steps == [1] + [3] * 20
    monkeypatch.setattr(loop, "TIMED_WINDOWS", 1)
    (tmp_path / "metrics.jsonl").unlink()
    windows = trained(Sleeper(seconds=0.01), 61, tmp_path)
    assert windows.steps == [1, 60]
    assert 2 <= max(parts(tmp_path)[:-1]) <= 5
    assert 0.6 < windows.seconds[1] < 6


def test_parts_are_as_long_as_all_processes_agree(tmp_path: Path) -> None:
    """Losses are summed over processes: each must have taken as many steps."""
    trained(Sleeper(agreed=0.5), 401, tmp_path)
    assert parts(tmp_path)[:4] == [1, 4, 16, 20]


def test_a_loss_that_diverges_stops_a_long_run_soon(tmp_path: Path) -> None:
    program = Sleeper(diverges_at=3000)
    with pytest.raises(Diverged, match="the loss of step 3000 is nan"):
        trained(program, 1_000_000, tmp_path)
    assert program.steps <= 3000 + 2 * loop.MOST_STEPS


def test_memory_hardly_grows_with_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_STEPS", 100)

    def peak(steps: int) -> int:
        (tmp_path / "metrics.jsonl").unlink(missing_ok=True)
        tracemalloc.start()
        trained(Sleeper(), steps, tmp_path)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    short, long = 4_000, 14_000
    assert (peak(long) - peak(short)) / (long - short) < 16, "a loss has 8 bytes"


def test_every_step_but_the_first_is_timed(tmp_path: Path) -> None:
    windows = trained(Sleeper(seconds=0.002), 61, tmp_path)
    assert sum(windows.awaited_step_times.values()) == 60
    assert percentile([windows.awaited_step_times], 0.0) >= 0.00198


def test_steps_are_not_timed_by_calls_that_return_ahead_of_them(tmp_path: Path) -> None:
    windows = trained(Sleeper(seconds=0.002, ahead=True), 61, tmp_path)
    assert windows.awaited_step_times == {}
    assert sum(windows.seconds) > 60 * 0.002


def test_the_times_of_steps_need_no_more_memory_for_more_steps(tmp_path: Path) -> None:
    windows = trained(Sleeper(), 20_001, tmp_path)
    assert sum(windows.step_times.values()) == 20_000
    assert len(windows.step_times) < 1500


def test_bytes_are_of_all_parts_of_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Traffic, "read", lambda self: {})
    traffic = Traffic(ProcessFile(tmp_path, "rank-0", 0), {})
    none, some, more = (loop_counters(sent) for sent in (0, 30, 100))
    traffic.open(counts=False)
    traffic.add(none, more, 1)
    traffic.open()
    traffic.add(none, some, 3)
    traffic.add(none, more, 2)
    assert traffic.own(threads=1).sent_bytes_per_step == pytest.approx(130 / 5)


@pytest.mark.parametrize(("steps", "sent"), [(1, 40.0), (2, 7.0)])
def test_the_only_step_of_a_run_is_counted(
    steps: int, sent: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([loop_counters(0), loop_counters(40), loop_counters(40), loop_counters(47)])
    monkeypatch.setattr(Traffic, "read", lambda self: next(readings))
    traffic = Traffic(ProcessFile(tmp_path, "rank-0", 0), {})
    trained(Sleeper(), steps, tmp_path, traffic=traffic)
    assert traffic.own(threads=1).sent_bytes_per_step == sent, (
        "later steps send what a step sends, the first maybe more"
    )


def loop_counters(sent: int) -> dict[str, object]:
    from samestep.common.runtime.worker.usage import Counters

    return {"rank-0": Counters(sent, 0, 0)}


@pytest.fixture(scope="module")
def in_parts(launcher: Launcher) -> Launcher:
    return LentLauncher(launcher, "tests.common.runtime.parts_worker")


@pytest.mark.parametrize(
    "cell",
    [
        *(pytest.param(f"torch:{name}", marks=pytest.mark.torch) for name in ("ddp", "pp", "rpc_parameter_server")),
        pytest.param("torch:rpc", marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("tf:multi_worker_mirrored", marks=pytest.mark.tf),
        pytest.param("tf:dtensor+clients=2", marks=[pytest.mark.tf, pytest.mark.slow]),
    ],
)
def test_ranks_of_different_speed_take_the_same_steps_in_parts(in_parts: Launcher, tmp_path: Path, cell: str) -> None:
    asked = RunConfig(workload="digits-mlp+width=32", devices=2, batch_size=48, steps=41, parity=True, dtype="float64")
    asked = Cell.parse(cell).apply_to(dataclasses.replace(asked, timeout_seconds=20.0, out=str(tmp_path / "run")))
    result = in_parts.run(parse(asked), launch_of(asked))
    assert result.parity.passed, result.parity.reason
    assert result.examples_per_second.windows == 2
    assert len(parts(tmp_path / "run")) > 3
