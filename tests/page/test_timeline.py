"""Traced steps: both frameworks leave the same lanes, every send meets its receipt, and nothing that is timed changes."""

import copy
import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from documenting import docs_pictures
from documenting.docs_pictures import drawn_from, passes
from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.chrome_trace import _lanes
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.state_file import read_state
from samestep.common.steps.log import read_log
from samestep.common.timeline import GAP_NS, TRACED_STEPS, Activity, busy, idle
from samestep.experiments.page import observed
from samestep.experiments.page.drawings.svg import file_of
from samestep.experiments.page.drawings.timeline import timeline
from samestep.experiments.printing.picture import SMALL
from samestep.experiments.printing.trace_file import TRACE, Trace, load_trace
from samestep.experiments.run import recorded
from tests.cells import SIZED
from tests.conftest import RunCell
from tests.page.trace_faults import faults
from tests.page.traces import event, lane, save, written
from tests.results import made

SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000


def did(start: float, end: float, name: str = "forward", lane: str = "compute") -> Activity:
    return Activity(0, lane, name, int(start * MS), int(end * MS))


def spans(found: list[Activity]) -> list[tuple[str, float, float]]:
    return [(each.name, each.start_ns / MS, each.end_ns / MS) for each in found]


def test_short_gaps_are_pythons_and_long_ones_idle() -> None:
    found = busy([did(1, 2), did(2.05, 3), did(3.05, 4, "backward"), did(6, 7, "update")], 0, 8 * MS)
    assert spans(found) == [("forward", 1, 3.05), ("backward", 3.05, 4), ("update", 6, 7)]
    assert spans(idle(found, 0, 0, 8 * MS)) == [("idle", 0, 1), ("idle", 4, 6), ("idle", 7, 8)]
    assert GAP_NS == 100_000


def test_what_several_threads_compute_is_one_lane() -> None:
    found = busy([did(0, 4), did(1, 2, "backward"), did(3, 6, "update")], 0, 8 * MS)
    assert spans(found) == [("forward", 0, 4), ("update", 4, 6)]


def test_what_has_no_name_is_of_the_pass_around_it() -> None:
    found = busy([did(0, 1, ""), did(2, 3, "backward"), did(2.4, 2.5, ""), did(3.05, 4, "")], 0, 8 * MS)
    assert spans(found) == [("forward", 0, 1), ("backward", 2, 3.05), ("update", 3.05, 4)]


def test_a_step_ends_where_it_ends() -> None:
    assert spans(busy([did(0, 9), did(9, 10)], 1 * MS, 8 * MS)) == [("forward", 1, 8)]


def test_a_transfer_that_outlasts_its_step_has_a_lane_of_its_own() -> None:
    run = parse(RunConfig(strategy="ddp", devices=2))
    moved = [did(1, 5, "all_reduce", "communicate"), did(4.5, 6, "all_reduce", "communicate")]
    lanes = _lanes(run, (), ((0, 4 * MS), (4 * MS, 8 * MS)), moved, (0, 0), "all")
    assert [lane for _, lane, each in lanes if each.activity in moved] == ["communicate", "communicate 2"]


# --- what a trace must not be -----------------------------------------------------------------------------------------


def loaded(folder: Path) -> Trace:
    found = load_trace(folder)
    assert found is not None
    return found


def named(events: list[dict], pid: int, name: str) -> dict:
    return next(each for each in events if each["ph"] == "X" and each["pid"] == pid and each["name"] == name)


def test_a_trace_without_a_fault(tmp_path: Path) -> None:
    written(tmp_path)
    assert faults(loaded(tmp_path)) == []


def test_what_is_in_flight_while_a_backward_pass_runs_overlaps_it(tmp_path: Path) -> None:
    """A message of 10 us and a collective of 5; the backward pass takes 5, of which the receipt misses the first."""
    events = written(tmp_path)
    assert loaded(tmp_path).overlap() == (15, 4.5)
    for pid in range(2):
        events.append(event(pid, 2, 12, 30, "all_reduce", meeting="all_reduce of 0 1, 2", ranks=2))
    save(tmp_path, events)
    assert loaded(tmp_path).overlap() == (31.5, 4.5), "what is in flight together counts once"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda events: events.remove(named(events, 1, "receive")), "step 0: 0 to 1, 1 is sent 1 times and received 0"),
        (lambda events: events.remove(named(events, 1, "all_reduce")), "is of 2 devices and has 1 ends"),
        (lambda events: named(events, 0, "send")["args"].pop("meeting"), "rank-0: send at 10 us meets nothing"),
        (lambda events: named(events, 0, "send").update(ts=25, dur=1), "is received before it is sent"),
        (lambda events: named(events, 0, "backward").update(ts=9), "backward at 9 us begins before forward ends"),
        (lambda events: named(events, 0, "forward").update(ts=20), "backward at 10 us is not in order"),
        (lambda events: named(events, 0, "forward").update(dur=-1), "forward ends before it starts"),
        (lambda events: events.remove(lane(3, "idle")), "rank-0 has the lanes data, compute, communicate, not"),
        (lambda events: events.pop(), ""),
    ],
)
def test_a_fault_is_found(tmp_path: Path, change: Callable[[list[dict]], object], fault: str) -> None:
    events = copy.deepcopy(written(tmp_path))
    change(events)
    save(tmp_path, events)
    found = "\n".join(faults(loaded(tmp_path)))
    assert fault in found if fault else not found, found


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"traceEvents": []}', '{"traceEvents": [{"ph": "X"}]}', "nul"])
def test_a_file_that_is_no_trace(tmp_path: Path, content: str) -> None:
    (tmp_path / TRACE).write_text(content)
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path / TRACE} is not a trace of a run")):
        load_trace(tmp_path)


@pytest.mark.parametrize(
    ("lane", "why"), [("compute", "it has no step"), ("idle", "it does not say what rank-0 computed")]
)
def test_a_trace_without_what_is_drawn(tmp_path: Path, lane: str, why: str) -> None:
    """A file that names lanes and no more was a traceback of whoever draws it."""
    names = {(0, "process_name"): "rank-0", (1, "thread_name"): lane}
    events = [
        {"ph": "M", "pid": 0, "tid": tid, "name": kind, "args": {"name": name}} for (tid, kind), name in names.items()
    ]
    save(tmp_path, events)
    with pytest.raises(ConfigError, match=f"is not a trace of a run: {why}; trace the run again"):
        load_trace(tmp_path)


def test_a_run_without_a_trace_has_none(tmp_path: Path) -> None:
    assert load_trace(tmp_path) is None


# --- traces of runs ---------------------------------------------------------------------------------------------------


def traced(run_cell: RunCell, folder: Path, cell: str, **fields: object) -> Trace:
    run_cell(
        cell, SIZED["mlp"], out=str(folder), **{"devices": 2, "trace": True, "parity": False, "steps": 3, **fields}
    )
    assert not list(folder.glob("trace-*.json")), "what the processes left is joined and removed"
    trace = loaded(folder)
    assert faults(trace) == []
    assert trace.steps == list(range(TRACED_STEPS))
    return trace


def is_current(schedule: str, trace: Trace) -> bool:
    return f'data-drawn-from="{drawn_from(trace)}"' in docs_pictures.schedule_place(schedule).read_text()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("schedule", docs_pictures.SCHEDULES)
def test_a_schedule_is_current(launcher: Launcher, schedule: str) -> None:
    small = dataclasses.replace(SMALL, workload="synthetic-mlp+width=32+layers=9", trace=True)
    trace = docs_pictures.trace_schedule(launcher, schedule, small)
    assert faults(trace) == []
    assert is_current(schedule, trace), "its passes come in another order: run `make docs-pictures`"


def holds(trace: Trace, *names: str) -> bool:
    return all({span.name for span in device.lanes["compute"]} >= set(names) for device in trace.devices)


@pytest.mark.torch
def test_a_pipeline_of_torch(run_cell: RunCell, tmp_path: Path) -> None:
    trace = traced(run_cell, tmp_path / "run", "torch:pp+microbatches=4+schedule=1f1b")
    assert [device.name for device in trace.devices] == ["rank-0", "rank-1"]
    assert holds(trace, "forward", "backward", "update")
    assert trace.arrows == TRACED_STEPS * 2 * 4, "each micro-batch there and back"
    first = ["0F0", "0F1", "0B0", "0F2", "0B1", "0F3", "0B2", "0B3"]
    second = ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1F3", "1B3"]
    assert [passes(trace, step) for step in trace.steps] == [[first, second]] * TRACED_STEPS
    assert is_current("1f1b", trace)


@pytest.mark.torch
def test_a_mesh_of_torch_and_its_own_profile(run_cell: RunCell, tmp_path: Path) -> None:
    fields = {"devices": None, "trace": False, "profile": True}
    trace = traced(run_cell, tmp_path / "run", "torch:hybrid+mesh=pipe=2,shard=2", **fields)
    assert {span.ranks for device in trace.devices for span in device.transfers} == {0, 2}
    assert recorded(tmp_path / "run").count("\nProfile: ") == 4
    for rank in range(4):
        assert json.loads((tmp_path / "run" / f"profile-rank-{rank}.json").read_text())["traceEvents"]


def profiled(run_cell: RunCell, folder: Path) -> tuple[Trace, Path]:
    """Traces two workers under TensorFlow's profiler, which ends a process at its stop in about one of ten runs (2.21).

    It aborts on memory that it has freed twice, or whose size is wrong. Any other failure is one of ours.
    """
    for attempt in range(4):
        run = folder / f"run-{attempt}"
        try:
            return traced(run_cell, run, "tf:multi_worker_mirrored", profile=True), run
        except WorkerFailed as error:
            if "SIGABRT" not in str(error) or "profiler_v2.py" not in str(error):
                raise
    pytest.fail("the profiler ended four runs")


@pytest.mark.tf
def test_workers_of_tensorflow_and_their_own_profile(run_cell: RunCell, tmp_path: Path) -> None:
    trace, run = profiled(run_cell, tmp_path)
    assert [device.name for device in trace.devices] == ["worker-0", "worker-1"]
    assert holds(trace, "forward", "backward", "update")
    for device in trace.devices:
        assert {(span.name, span.ranks) for span in device.transfers} == {("all_reduce", 2)}
        assert device.lanes["data"]
    assert all((run / f"profile-worker-{rank}.xplane.pb").stat().st_size for rank in range(2))


@pytest.mark.tf
def test_devices_of_one_process_of_tensorflow(run_cell: RunCell, tmp_path: Path) -> None:
    trace = traced(run_cell, tmp_path / "run", "tf:mirrored")
    assert [device.name for device in trace.devices] == ["rank-0, CPU:0", "rank-0, CPU:1"]
    assert holds(trace, "forward", "backward")


def test_the_oracle_computes_all_the_time(run_cell: RunCell, tmp_path: Path) -> None:
    trace = traced(run_cell, tmp_path / "run", "numpy:oracle", devices=1, dtype="float64")
    for step in trace.steps:
        (whole,) = (span for span in trace.devices[0].lanes["compute"] if span.step == step)
        assert (whole.start, whole.end) == pytest.approx(trace.bounds(step), abs=0.01)


@pytest.mark.torch
def test_what_is_timed_and_judged_is_the_same_without_a_trace(run_cell: RunCell, tmp_path: Path) -> None:
    """A run and the same run with a trace have the same losses and weights to the bit, and measure the same step."""
    results = []
    for out, trace in ((tmp_path / "without", False), (tmp_path / "with", True)):
        fields = {"devices": 2, "optimizer": "adamw", "keep_state": True, "out": str(out), "trace": trace}
        results.append(run_cell("torch:ddp", SIZED["mlp"], **fields))
    assert read_log(tmp_path / "without").losses == read_log(tmp_path / "with").losses
    without, with_trace = (read_state(tmp_path / name) for name in ("without", "with"))
    assert without.step == with_trace.step
    for name, value in without.params.items():
        assert value.tobytes() == with_trace.params[name].tobytes()
    same = ("metric_value", "parity", "exchanges", "steps")
    assert [[getattr(result, name) for name in same] for result in results[1:]] == [
        [getattr(results[0], name) for name in same]
    ]
    assert results[0].processes[0].sends == results[1].processes[0].sends


@pytest.mark.torch
@pytest.mark.skipif("TRACE_PROCESSOR" not in os.environ, reason="TRACE_PROCESSOR does not name Perfetto's binary")
def test_perfetto_reads_it(run_cell: RunCell, tmp_path: Path) -> None:
    trace = traced(run_cell, tmp_path / "run", "torch:pp")
    query = tmp_path / "query.sql"
    query.write_text("select count(*) from slice; select count(*) from flow;")
    command = [os.environ["TRACE_PROCESSOR"], "-q", str(query), str(tmp_path / "run" / TRACE)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    count = sum(len(found) for device in trace.devices for found in device.lanes.values())
    assert [int(line) for line in told.splitlines() if line.isdigit()] == [count, trace.arrows]


# --- drawings ---------------------------------------------------------------------------------------------------------


def test_a_drawing_is_to_scale(tmp_path: Path) -> None:
    written(tmp_path)
    root = ElementTree.fromstring(file_of(timeline(loaded(tmp_path), "torch:pp")))
    forward, backward = (root.findall(f".//{SVG}rect[@class='{kind}']")[-1] for kind in ("forward", "backward"))
    assert float(forward.get("width", 0)) == pytest.approx(2 * float(backward.get("width", 0)), abs=0.03)
    assert len(root.findall(f".//{SVG}path[@class='arrow']")) == 1
    assert "rank-0: data 0 ms, compute 0.015 ms, communicate 0.015 ms, idle 0 ms" in (root.findtext(f"{SVG}desc") or "")


def test_a_page_draws_what_was_traced(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / TRACE).write_text("<script>")
    places = {
        "numpy:oracle": tmp_path,
        "torch:pp": tmp_path,
        "torch:ddp": tmp_path / "nowhere",
        "tf:mirrored": tmp_path / "broken",
    }
    entries = [
        SimpleNamespace(key="r0", name=name, framework=name.partition(":")[0], directories=(place,), result=made(name))
        for name, place in places.items()
    ]
    section = observed.write_timelines(SimpleNamespace(entries=entries))
    assert section is not None
    assert re.findall("<summary>(.*?)</summary>", section) == ["torch:pp", "tf:mirrored"]
    assert section.count("<svg ") == 1
    assert "is not a trace of a run" in section
    assert observed.write_timelines(SimpleNamespace(entries=entries[2:3])) is None
