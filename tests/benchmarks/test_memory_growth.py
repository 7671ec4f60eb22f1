"""What `benchmarks.cost.memory` says of made-up runs, and that it watches the processes of a real one."""

import random
import sys
from pathlib import Path

import pytest

from benchmarks.cost import memory
from benchmarks.cost.memory import Sample, Taken, slope, table

STEPS = 30_000


def samples(bytes_a_step: float, role: str = "rank-0", noise: int = 40_000) -> tuple[Sample, ...]:
    """Readings of a process that fills its caches in the first fifth, then grows steadily while it also breathes."""
    draw = random.Random(f"{bytes_a_step} {role}")
    found = []
    for step in range(0, STEPS, 250):
        filled = min(step, STEPS // 5) * 2000
        found.append(Sample(role, step, int(250e6 + filled + bytes_a_step * step + draw.uniform(-noise, noise))))
    return tuple(found)


@pytest.mark.parametrize("grows", [0, 8, 130, 1700, -50])
def test_the_slope_is_that_of_the_run_without_its_beginning(grows: int) -> None:
    mean, low, high = slope(samples(grows), STEPS)
    assert low <= grows <= high
    assert mean == pytest.approx(grows, abs=6)


def test_only_what_grows_is_marked() -> None:
    runs = [
        Taken("tf:mirrored", STEPS, 0, samples(1700)),
        Taken("torch:ddp", STEPS, 0, samples(8) + samples(300, "rank-1")),
        Taken("torch:fsdp", STEPS, 0, samples(130, noise=60_000_000)),
        Taken("tf:tpu", STEPS, 0, error="needs libtpu"),
        Taken("tf:single", STEPS, 0, samples(8)[:3]),
    ]
    _, _, *lines = table(runs).splitlines()
    marked = {tuple(cell.strip() for cell in line.split("|")[1:3]): "GROWS" in line for line in lines}
    assert marked == {
        ("tf:mirrored", "rank-0"): True,
        ("torch:ddp", "rank-0"): False,
        ("torch:ddp", "rank-1"): True,
        ("torch:fsdp", "rank-0"): False,
        ("tf:tpu", ""): False,
        ("tf:single", "rank-0"): False,
    }
    assert "needs libtpu" in table(runs)
    assert "too few readings" in table(runs)


def test_a_run_is_watched_once_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = memory.watching
    monkeypatch.setattr(memory, "watching", lambda directory: quick(directory, 0.01))
    store = tmp_path / "memory.jsonl"
    command = ["memory", "numpy:oracle", "--steps", "3000", "--store", str(store)]
    monkeypatch.setattr(sys, "argv", command)
    memory.main()
    assert "numpy:oracle" in capsys.readouterr().out
    (run,) = memory.read(store)
    assert {sample.role for sample in run.samples} == {"rank-0"}
    assert all(sample.rss_bytes > 2**24 for sample in run.samples)
    monkeypatch.setattr(memory, "take", lambda *asked: pytest.fail("it was taken already"))
    memory.main()


def test_every_row_is_covered() -> None:
    assert {"numpy:oracle", "torch:hybrid", "tf:parameter_server"} <= set(memory.every_row())


@pytest.mark.tf
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("reduce", "least", "most"), [("ring", 1000, 3000), ("reduction_to_one_device", -500, 500)])
def test_a_step_of_mirrored_keeps_what_tensorflow_keeps(reduce: str, least: float, most: float) -> None:
    """Which is 1.7 kB for its collective, and nothing where it copies: a run adds nothing of its own."""
    run = memory.take(f"tf:mirrored+reduce={reduce}", 12_000, 0)
    assert run.error == ""
    mean, _, _ = slope(run.samples, 12_000)
    assert least < mean < most
