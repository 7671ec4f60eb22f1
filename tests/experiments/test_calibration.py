"""Fitting to measured runs: factors that are put in come out; what measures the machine prints what is read."""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.costs.sizes import MESSAGES
from samestep.common.errors import ConfigError, WorkerFailed, percent
from samestep.common.runtime.measured import adapter
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.seconds.core_time import Cores
from samestep.common.seconds.machine import Machine, load_machine
from samestep.common.seconds.step_time import StepTime
from samestep.experiments import advise as command
from samestep.experiments import calibrate
from samestep.experiments.advising import calibration
from samestep.experiments.advising.calibration import Calibration, calibrated
from samestep.experiments.advising.candidate_meshes import Candidate
from samestep.experiments.advising.candidates import search
from samestep.experiments.advising.local_machine import load_here, make_here, odd_figure, path
from samestep.experiments.advising.local_machine import store as stored
from samestep.experiments.advising.step_times import PARTS, seconds_of
from tests.experiments.test_advise import base, small_machine

ROOT = Path(__file__).parents[2]


def measured(machine: Machine, work: float, exchanges: float) -> list[tuple[Candidate, float]]:
    """Candidates with the seconds that they would take if the factors were these."""
    factors = Calibration("", 0, work, exchanges, 0.0, 0.0)
    found = search(base(batch_size=24), 8, 1e12, {}).fitting[::7]
    return [(each, factors.timed(seconds_of(each, machine)).total) for each in found]


@pytest.mark.parametrize(("work", "exchanges"), [(1.0, 1.0), (2.5, 0.5), (0.3, 4.0)])
def test_the_factors_that_were_put_in_come_out(work: float, exchanges: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = small_machine(1e12)
    runs = measured(machine, work, exchanges)
    monkeypatch.setattr(calibration, "_measured", lambda directory: runs)
    timer, found = calibrated(seconds_of, machine, Path("runs"))
    assert (found.work, found.exchanges) == pytest.approx((work, exchanges))
    assert found.error_after == pytest.approx(0, abs=1e-9)
    assert found.error_left_out == pytest.approx(0, abs=1e-9)
    assert found.runs == len(runs)
    assert all(timer(each, machine).total == pytest.approx(seconds) for each, seconds in runs)


def test_runs_that_do_not_tell_the_factors_apart_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = small_machine(1e12)
    (candidate, _), *_ = measured(machine, 1, 1)
    runs = [(candidate, 3 * seconds_of(candidate, machine).total)] * 2
    monkeypatch.setattr(calibration, "_measured", lambda directory: runs)
    _, found = calibrated(seconds_of, machine, Path("runs"))
    assert (found.work, found.exchanges) == pytest.approx((3, 3))
    assert found.error_left_out is None  # two factors fit two runs exactly
    assert "says nothing of their error; give 3 runs or more" in str(found)


def test_the_error_of_runs_that_are_left_out_is_larger_than_that_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = small_machine(1e12)
    runs = [
        (each, factor * seconds)
        for factor, (each, seconds) in zip((1.0, 1.3, 0.8, 1.1), measured(machine, 1, 1)[:4], strict=True)
    ]
    monkeypatch.setattr(calibration, "_measured", lambda directory: runs)
    _, found = calibrated(seconds_of, machine, Path("runs"))
    assert found.error_left_out is not None and found.error_left_out > found.error_after > 0
    assert f"{percent(found.error_left_out)} on runs that are left out" in str(found)


def test_only_exchanges_get_the_second_factor() -> None:
    parts = dict.fromkeys(PARTS, 1.0)
    timed = Calibration("", 0, 2.0, 5.0, 0.0, 0.0).timed(StepTime.of(parts)).parts()
    assert {name for name, seconds in timed.items() if seconds == 2.0} == {"compute", "pipeline_bubble", "optimizer"}
    exchanges = {"tensor", "data", "context", "expert"}
    assert {name for name, seconds in timed.items() if seconds == 5.0} >= {f"{each}_exchange" for each in exchanges}
    assert set(timed.values()) == {2.0, 5.0}


def test_a_directory_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no run of a strategy that is ranked"):
        command.main(["--workload", "megatron-7.5b", "--nodes", "8", "--calibrate", str(tmp_path)])


def test_a_run_that_is_kept_is_read() -> None:
    found = list(calibration._measured(ROOT / "tests" / "data"))
    assert found and all(seconds > 0 for _, seconds in found)


@pytest.mark.parametrize(("framework", "strategy"), [("torch", "ddp"), ("torch", "c10d"), ("tf", "mirrored")])
def test_runs_that_cannot_be_predicted_are_passed_over(framework: str, strategy: str, tmp_path: Path) -> None:
    """Of a user's model, which nobody described, and of rows that are not ranked."""
    ranked = ROOT / "tests" / "data" / "ddp"
    values = json.loads((ranked / "result.json").read_text())
    row = {"framework": framework, "strategy": strategy}
    values |= {**row, "config": {**values["config"], **row, "options": {}, "model": "net.py", "data": "arrays.npz"}}
    (other := tmp_path / "other").mkdir()
    (other / "result.json").write_text(json.dumps(values))
    assert not list(calibration._measured(tmp_path))
    shutil.copytree(ranked, tmp_path / "ranked")
    assert [each.run.strategy.name for each, _ in calibration._measured(tmp_path)] == ["ddp"]


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_what_measures_prints_what_is_read(tmp_path: Path) -> None:
    """Two processes, as `samestep calibrate` starts them, with next to no repetitions."""
    few = "r.REPEATS, r.SIZES, r.SECONDS, r.LARGE = 1, (16, 32), 1e-4, 2**12"
    short = f"import samestep.torch_impl.core_rates as r; {few}; r.main()"
    line = [sys.executable, "-W", "ignore", "-c", short]
    started = [
        subprocess.Popen(
            [*line, str(rank), str(tmp_path / "store")],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        (told, _), (nothing, _) = (process.communicate(timeout=200) for process in started)
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0]
    assert nothing == ""
    found, memory = adapter(tuple[Cores, float]).validate_python(json.loads(told))
    assert list(found.matmul) == [16, 32]
    assert {*found.latency_seconds} == {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "send"}
    figures = [
        *found.matmul.values(),
        *found.latency_seconds.values(),
        *found.exchange_bytes_per_second.values(),
        memory,
    ]
    assert min(*figures, found.element_seconds) > 0


POSSIBLE = Cores(
    matmul={16: 1e9, 64: 1e10},
    element_seconds=1e-9,
    latency_seconds=dict.fromkeys(MESSAGES, 1e-4),
    exchange_bytes_per_second=dict.fromkeys(MESSAGES, 1e9),
    overhead_seconds={"torch:fsdp": (1e-3, 1e-5)},
)
MEMORY = 5e9
IMPOSSIBLE: list[tuple[str, dict[str, object]]] = [
    *(("a matrix product of 16 came out as", {"matmul": {16: rate}}) for rate in (0.0, -1e9, math.inf, math.nan, 1e18)),
    *(
        ("an elementwise operation came out as", {"element_seconds": seconds})
        for seconds in (0.0, -1.0, math.nan, 1e-30)
    ),
    *(("a small send came out as", {"latency_seconds": {"send": seconds}}) for seconds in (0.0, -1e-6, math.inf)),
    *(
        ("a large send came out as", {"exchange_bytes_per_second": {"send": rate}})
        for rate in (0.0, math.nan, 8.4e15, 2 * MEMORY)
    ),
    *(
        (
            "what a step of torch:fsdp takes besides arithmetic and messages came out as",
            {"overhead_seconds": {"torch:fsdp": (s, 1e-5)}},
        )
        for s in (0.0, -1e-3, 1e-7, math.nan)
    ),
    *(
        ("what a layer and micro-batch of torch:fsdp takes", {"overhead_seconds": {"torch:fsdp": (1e-3, s)}})
        for s in (0.0, -1e-4, math.inf)
    ),
]


def test_what_a_machine_can_have_is_taken() -> None:
    assert odd_figure(POSSIBLE, MEMORY) == ""
    assert odd_figure(POSSIBLE, math.nan).startswith("memory came out as nan")


@pytest.mark.parametrize(("told", "changed"), IMPOSSIBLE)
def test_a_figure_that_no_machine_has_is_found(told: str, changed: dict[str, object]) -> None:
    assert odd_figure(dataclasses.replace(POSSIBLE, **changed), MEMORY).startswith(told)


@pytest.mark.parametrize(("told", "changed"), IMPOSSIBLE)
def test_it_is_not_read_back(
    told: str, changed: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stored(dataclasses.replace(make_here(POSSIBLE, 2, 8e9, MEMORY), cores=dataclasses.replace(POSSIBLE, **changed)))
    with pytest.raises(ConfigError, match=rf"{told}.*possible; run samestep calibrate again") as refused:
        load_here()
    assert refused.value.exit_code == 2


def measuring(monkeypatch: pytest.MonkeyPatch, overheads: list[tuple[float, float]], send_rates: list[float]) -> None:
    """Has the measurements come out as they are listed, and the last one again."""

    def rates() -> tuple[Cores, float]:
        rate = send_rates.pop(0) if len(send_rates) > 1 else send_rates[0]
        sends = POSSIBLE.exchange_bytes_per_second | {"send": rate}
        return dataclasses.replace(POSSIBLE, exchange_bytes_per_second=sends, overhead_seconds={}), MEMORY

    def overhead(launcher: object, row: str, here: object) -> tuple[float, float]:
        return overheads.pop(0) if len(overheads) > 1 else overheads[0]

    monkeypatch.setattr(calibrate, "_measure_rates", rates)
    monkeypatch.setattr(calibrate, "_overhead", overhead)
    monkeypatch.setattr(Launcher, "warm", lambda self, frameworks: None)


@pytest.mark.torch
def test_what_came_out_impossible_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measuring(monkeypatch, [(0.0, 1e-5), (-1e-3, 1e-5), (1e-3, 1e-5)], [math.inf, 1e9])
    assert calibrate.main([]) == 0
    found = load_here()
    assert found is not None
    assert set(found.cores.overhead_seconds.values()) == {(1e-3, 1e-5)}
    assert found.cores.exchange_bytes_per_second["send"] == 1e9


@pytest.mark.torch
def test_messages_are_measured_again_where_steps_stay_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that passed while they were measured makes every later step impossible, however often it is repeated."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measuring(monkeypatch, [(1e-3, 1e-5), *[(-1e-3, 1e-5)] * calibrate.TRIES, (2e-3, 1e-5)], [1e9, 2e9])
    assert calibrate.main([]) == 0
    found = load_here()
    assert found is not None
    assert set(found.cores.overhead_seconds.values()) == {(2e-3, 1e-5)}
    assert found.cores.exchange_bytes_per_second["send"] == 2e9


@pytest.mark.torch
@pytest.mark.parametrize(
    ("overhead", "send_rate", "told"),
    [
        ((0.0, 1e-5), 1e9, "what a step of torch:single takes besides .* came out as 0 s"),
        ((1e-3, 1e-5), 8.4e15, "a large send came out as 8.4e\\+15 bytes/s"),
    ],
)
def test_what_stays_impossible_is_refused_and_nothing_is_stored(
    overhead: tuple[float, float], send_rate: float, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measuring(monkeypatch, [overhead], [send_rate])
    with pytest.raises(WorkerFailed, match=rf"{told}.*measured 3 times, and nothing was stored") as refused:
        calibrate.main([])
    assert refused.value.exit_code == 1 and "\n" not in str(refused.value)
    assert not path().exists()


def test_every_machine_that_comes_along_can_be_asked_for() -> None:
    assert load_machine("h100-80gb").gpus_per_node == 8
