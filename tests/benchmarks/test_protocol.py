"""What `benchmarks.measuring.protocol` prints follows from its store, and its store holds every run once."""

import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measuring import protocol
from benchmarks.measuring.protocol import ITSELF, REPEATED, Key, intervals, measure, plan, read, verdicts
from tests.common.judging.made_up_speeds import Noise, draw

CELLS = ["torch:single", "torch:ddp"]


class FakeLauncher:
    """Starts nothing."""

    def __enter__(self) -> "FakeLauncher":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def warm(self, frameworks: object) -> None:
        pass


def made_up(noise: Noise, comparisons: int) -> dict[Key, float | None]:
    random, speeds = np.random.default_rng(0), {}
    for number in range(comparisons):
        drawn = draw(noise, 5, 4, random)
        for r in range(5):
            speeds |= {Key(REPEATED, number, r, cell): drawn[r, n] for n, cell in enumerate(CELLS)}
            speeds |= {Key(ITSELF, number, r, "torch:ddp", side): drawn[r, 2 + side] for side in (0, 1)}
    return speeds


def shares(table: str) -> dict[str, list[str]]:
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {line[0]: line[1:] for line in lines}


def percent(text: str) -> float:
    return float(text.removesuffix("%"))


def test_the_tables_say_how_often_it_held() -> None:
    speeds = made_up(Noise(run=0.03), 100)
    every = shares(intervals(speeds, 5))
    assert {*every} == {*CELLS, "all"}
    assert every["all"][1] == str(2 * 100 * 99 // 2)
    assert 91 <= percent(every["all"][2]) <= 98
    assert 10 < percent(every["all"][3]) < 40
    assert 0.8 < float(every["torch:ddp"][4]) < 1.2
    itself, later, same = shares(verdicts(speeds, 5)).values()
    assert percent(itself[1]) <= 10
    assert 83 <= percent(later[1]) < percent(same[1])
    assert itself[0] == "100"


def test_a_drift_between_comparisons_shows() -> None:
    """What catches an interval that is too narrow."""
    drifting = {
        key: speed * 1.05**key.comparison for key, speed in made_up(Noise(run=0.01, round=0.0), 20).items() if speed
    }
    table = shares(intervals(drifting, 5))
    assert percent(table["all"][2]) < 60
    assert float(table["torch:ddp"][4]) > 5


def test_a_comparison_that_is_not_complete_does_not_count() -> None:
    speeds = made_up(Noise(run=0.03), 3)
    speeds[Key(REPEATED, 1, 4, "torch:ddp")] = None
    del speeds[Key(REPEATED, 2, 0, "torch:single")]
    table = shares(intervals(speeds, 5))
    assert (table["torch:ddp"][0], table["torch:single"][0]) == ("2", "2")


def test_every_run_is_measured_once_whenever_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, store, taken = list(plan(CELLS, 2, 3, 5)), tmp_path / "store.jsonl", []
    assert len(set(keys)) == len(keys) == 2 * 2 * 5 + 3 * 2 * 5

    def stop_now_and_then(cell: str, launcher: object) -> float:
        taken.append(cell)
        if len(taken) in (1, 7, 30):
            raise KeyboardInterrupt
        return float(len(taken))

    monkeypatch.setattr(protocol, "Launcher", FakeLauncher)
    monkeypatch.setattr(protocol, "_speed", stop_now_and_then)
    measure(keys, store, until=time.monotonic() - 1)
    assert taken == []
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            measure(keys, store, until=float("inf"))
    measure(keys, store, until=float("inf"))
    lines = [json.loads(line)["run"] for line in store.read_text().splitlines()]
    assert lines == [dataclasses.asdict(key) for key in keys]
    assert {*read(store)} == {*keys}
    assert len(taken) == len(keys) + 3
