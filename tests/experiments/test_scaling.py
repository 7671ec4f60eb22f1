"""Rows with several numbers of devices: speed-ups round by round, what stays serial, and what may not be told."""

import dataclasses
from collections.abc import Sequence

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.runtime.measured import Conditions
from samestep.common.runtime.records import HostBytes, RunResult
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.comparison_request import describe
from samestep.experiments.comparing.plan import make_plan
from samestep.experiments.comparing.row import Row
from samestep.experiments.comparing.scaling import Scaling, find_scaling
from samestep.experiments.printing.scaling_report import write_scaling
from tests.results import made

RATES = {1: 1000.0, 2: 1800.0, 4: 3000.0}


@pytest.fixture(autouse=True)
def wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def on(devices: int, rate: float, batch: int = 48, cores: int | None = None, **changes: object) -> RunResult:
    """A run of torch:ddp on as many cores as devices."""
    run = made("torch:ddp", (rate, rate, rate), conditions=Conditions(others_share=0.0), global_batch_size=batch)
    config = dataclasses.replace(run.config, devices=devices, mesh=f"data={devices}")
    rows = [dataclasses.replace(run.processes[0], rank=rank) for rank in range(devices)]
    made_on = {"config": config, "mesh": f"data={devices}", "processes": rows, "cores": cores or devices}
    return dataclasses.replace(run, **{**made_on, "step_seconds_median": batch / rate, **changes})


def strong(rates: dict[int, float] = RATES, **changes: object) -> dict[str, Sequence[RunResult]]:
    return {f"torch:ddp+devices={n}": [on(n, rate, **changes)] for n, rate in rates.items()}


def rows_of(rows: dict[str, Sequence[RunResult]]) -> list[Row]:
    return [Row.of(Cell.parse(cell), *results) for cell, results in rows.items()]


def scaled(rows: dict[str, Sequence[RunResult]], allowed: tuple[str, ...] = ()) -> Scaling:
    (found,) = find_scaling(rows_of(rows), allowed)
    return found


def test_strong_scaling_has_speed_ups_efficiencies_and_amdahls_share() -> None:
    found = scaled(strong())
    assert (str(found.cell), found.kind) == ("torch:ddp", "strong")
    assert [point.speedup and round(point.speedup.ratio, 3) for point in found.points] == [None, 1.8, 3.0]
    assert [found.efficiency(point) for point in found.points] == [None, pytest.approx(0.9), pytest.approx(0.75)]
    assert found.serial_share == pytest.approx(0.11, abs=0.005)
    assert [point.textbook for point in found.points] == [None, 1.9, 3.7]


@pytest.mark.parametrize(
    ("mesh", "told"), [("data=2", 1.9), ("shard=2", 1.9), ("pipe=2", None), ("tensor=2", None), ("pipe=2,data=1", None)]
)
def test_the_textbooks_speed_up_stands_only_where_devices_split_the_batch(mesh: str, told: float | None) -> None:
    rows = {f"torch:ddp+devices={n}": [on(n, 1000.0 * n)] for n in (1, 2)}
    rows["torch:ddp+devices=2"] = [dataclasses.replace(on(2, 1800.0), mesh=mesh)]
    assert [point.textbook for point in scaled(rows).points] == [None, told]


def test_two_numbers_of_devices_are_no_law() -> None:
    found = scaled(strong({1: 1000.0, 2: 1200.0}))
    assert found.serial_share is found.serial_interval is None
    text = " ".join(write_scaling([found]).split())
    assert "is not fitted to 2 numbers of devices; it takes at least 3, as in --devices 1,2,4" in text
    assert "no number of devices" not in text


def test_a_law_says_no_more_than_its_interval() -> None:
    """The share of each round is fitted alone: what rounds do not agree on is not told as a limit."""
    steady = {n: [on(n, rate * drift) for drift in (1.0, 0.5, 2.0)] for n, rate in RATES.items()}
    found = scaled({f"torch:ddp+devices={n}": row for n, row in steady.items()})
    assert found.serial_interval == (pytest.approx(0.111, abs=1e-3), pytest.approx(0.111, abs=1e-3))
    text = " ".join(write_scaling([found]).split())
    assert "11.1 % [11.1 %..11.1 %] of a step is serial" in text
    assert "no number of devices is more than 9.00x as fast as one" in text
    noisy = {n: [on(n, rate * drift ** (n - 1)) for drift in (1.0, 0.8, 1.2)] for n, rate in RATES.items()}
    wide = scaled({f"torch:ddp+devices={n}": row for n, row in noisy.items()})
    assert wide.serial_interval is not None and wide.serial_interval[0] == 0.0
    assert "no number of devices" not in write_scaling([wide])
    assert "(one round, so no interval)" in write_scaling([scaled(strong())])


def test_a_speed_up_is_taken_within_rounds() -> None:
    drift = (1.0, 0.5, 2.0)
    _, two, _ = scaled({f"torch:ddp+devices={n}": [on(n, rate * d) for d in drift] for n, rate in RATES.items()}).points
    assert two.speedup is not None
    assert (two.speedup.low, two.speedup.high) == (pytest.approx(1.8), pytest.approx(1.8))


def test_weak_scaling_is_told_by_its_batches() -> None:
    rows = {f"torch:ddp+devices={n}+batch_size={48 * n}": [on(n, 1000.0 * (0.1 + 0.9 * n), 48 * n)] for n in (1, 2, 4)}
    found = scaled(rows)
    assert (str(found.cell), found.kind) == ("torch:ddp", "weak")
    assert found.serial_share == pytest.approx(0.1, abs=0.005)
    assert "Gustafson's formula fitted to 1, 2, 4 devices" in " ".join(write_scaling([found]).split())


def test_several_batches_scale_each_for_itself() -> None:
    rows = {f"torch:ddp+devices={n}+batch_size={b}": [on(n, 1e3 * n, b)] for n in (1, 2) for b in (48, 96)}
    assert [(str(each.cell), each.kind) for each in find_scaling(rows_of(rows), ())] == [
        ("torch:ddp+batch_size=48", "strong"),
        ("torch:ddp+batch_size=96", "strong"),
    ]


def test_devices_that_share_cores_have_no_speed_up_and_the_title_says_so() -> None:
    rows = strong() | {"torch:ddp+devices=4": [on(4, 3000.0, cores=2)]}
    found = scaled(rows)
    assert [point.confounds for point in found.points] == [(), (), ("shared-cores",)]
    assert found.points[-1].speedup is None
    text = write_scaling([found])
    assert "4 devices share 2 cores: no speed-up can be told from that." in text.splitlines()[0]
    assert "(shared-cores)" in text
    assert "of devices; it takes at least 3, and the speed-up of the others says why" in " ".join(text.split())
    assert scaled(rows, ("shared-cores",)).points[-1].speedup is not None


def test_a_disturbed_run_has_no_speed_up() -> None:
    rows = strong() | {"torch:ddp+devices=2": [on(2, 1800.0, conditions=Conditions(others_share=0.4))]}
    assert [point.confounds for point in scaled(rows).points] == [(), ("busy",), ()]


def test_with_a_disturbed_baseline_nothing_is_fitted() -> None:
    found = scaled(strong() | {"torch:ddp+devices=1": [on(1, 1000.0, conditions=Conditions(others_share=0.4))]})
    assert [point.speedup for point in found.points] == [None] * 3
    assert found.serial_share is None
    assert "is not fitted to" in write_scaling([found])


def test_what_gets_slower_has_no_fit() -> None:
    text = write_scaling([scaled(strong({1: 1000.0, 2: 900.0, 4: 700.0}))])
    assert "more devices are slower here, which Amdahl's formula cannot describe" in text


def test_communication_is_shown_where_it_is_measured() -> None:
    run, rows = on(2, 1000.0, batch=48), strong()
    own = {"communication_seconds": 0.012, "overlap_seconds": 0.009}
    measured = [dataclasses.replace(row, measures=own) for row in run.processes]
    without = [dataclasses.replace(row, measures={}) for row in run.processes]
    shares = {}
    for name, processes in (("measured", measured), ("not", without)):
        rows["torch:ddp+devices=2"] = [dataclasses.replace(run, processes=processes)]
        point = scaled(rows).points[1]
        shares[name] = point.communication, point.exposed
    assert shares == {"measured": (pytest.approx(0.25), pytest.approx(0.0625)), "not": (None, None)}


@pytest.mark.parametrize(
    ("seconds", "rates", "reason"),
    [
        (0.06, {1: 1000.0, 2: 1500.0, 4: 2000.0}, "in flight for more than 100 % of a step: the first steps"),
        (0.002, {1: 1000.0, 2: 2200.0, 4: 4600.0}, "an efficiency of more than 100 %: the rate grows faster"),
        (0.012, RATES, ""),
    ],
)
def test_a_share_of_more_than_the_whole_is_explained(seconds: float, rates: dict[int, float], reason: str) -> None:
    rows = strong(rates)
    for cell, (run,) in rows.items():
        own = {"communication_seconds": seconds, "overlap_seconds": 0.0}
        rows[cell] = [dataclasses.replace(run, processes=[dataclasses.replace(p, measures=own) for p in run.processes])]
    said = " ".join(write_scaling([scaled(rows)]).split())
    assert f"* {reason}" in said if reason else "more than 100 %" not in said


def test_one_number_of_devices_is_no_scaling() -> None:
    rows = {"torch:ddp": [on(2, 1.0)], "torch:single": [made("torch:single")], "numpy:oracle": [made("numpy:oracle")]}
    assert find_scaling(rows_of(rows), ()) == ()
    assert write_scaling(()) == ""


def test_it_stands_below_the_table_of_a_comparison() -> None:
    rows = tuple(Row.of(Cell.parse(cell), *results) for cell, results in strong().items())
    comparison = Comparison(rows)
    assert "Strong scaling: the global batch stays the same." in comparison.report("")
    assert '"serial_share": 0.1' in comparison.to_json()
    assert "scaling" not in Comparison(rows[:1]).report("")


def test_what_hosts_send_each_other_stands_beside_the_prediction() -> None:
    rows = strong()
    sends = {"predicted_within_bytes": 0.0, "predicted_sent_bytes": 1024.0, "predicted_received_bytes": 1024.0}
    for n in (2, 4):
        (run,) = rows[f"torch:ddp+devices={n}"]
        each = [
            HostBytes(host=f"host{i}", within_bytes=0.0, sent_bytes=1034.0, received_bytes=1034.0, **sends)
            for i in range(n)
        ]
        rows[f"torch:ddp+devices={n}"] = [dataclasses.replace(run, by_host=tuple(each))]
    text = write_scaling([scaled(rows)])
    header, _, *lines = (line.split("|") for line in text.splitlines() if line.startswith("|"))
    at = {name.strip(): number for number, name in enumerate(header)}
    assert [line[at["hosts"]].strip() for line in lines] == ["1", "2", "4"]
    shown = [line[at["between hosts KiB"]].strip() for line in lines]
    assert shown == ["", "2.020 (2.000)", "4.039 (4.000)"]
    assert "hosts" not in write_scaling([scaled(strong())])


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = {f"{cell}+bucket_bytes=1048576": [*row, *row, *row] for cell, row in strong().items()}
    assert max(map(len, write_scaling(find_scaling(rows_of(rows), ())).splitlines())) <= width


# --- what is run ------------------------------------------------------------------------------------------------------


def planned(**given: object) -> tuple[str, ...]:
    plan = make_plan(describe({"strategies": "torch:ddp,torch:single", "workload": "digits-mlp", **given}))
    return tuple(map(str, plan.cells[1:]))


def test_weak_scaling_grows_the_batch_with_the_devices() -> None:
    grown = ("torch:ddp+devices=1", "torch:ddp+devices=2+batch_size=96", "torch:ddp+devices=4+batch_size=192")
    assert planned(devices="1,2,4", batch_size=48, scaling="weak") == (*grown, "torch:single")
    assert planned(devices="2,4", batch_size=48, scaling="weak")[:2] == (
        "torch:ddp+devices=2",
        "torch:ddp+devices=4+batch_size=96",
    )
    assert planned(devices="1,2", scaling="weak")[1] == "torch:ddp+devices=2+batch_size=256", (
        "the workload's own is 128"
    )
    assert planned(devices="1,2", scaling="strong") == planned(devices="1,2")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"scaling": "week"}, "--scaling 'week'|scaling.*week"),
        ({"scaling": "weak"}, "--scaling weak takes several numbers of devices, as in --devices 1,2,4."),
        ({"scaling": "weak", "devices": "2"}, "--scaling weak takes several numbers of devices"),
        ({"scaling": "weak", "devices": "2,x"}, "--devices 2,x is none"),
        ({"scaling": "weak", "devices": "1,2", "vary": {"batch_size": [1, 2]}}, "leave out batch_size in --vary"),
        (
            {"scaling": "weak", "devices": "1,2", "strategies": "torch:ddp+batch_size=8"},
            r"leave out batch_size in torch:ddp\+batch_size=8",
        ),
    ],
)
def test_what_cannot_scale_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        planned(**given)
