"""What a run leaves can be read again, and what is damaged says so in one line."""

import dataclasses
import json
import resource
import statistics
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ERRORS, ConfigError, Diverged, WorkerFailed, count
from samestep.common.files.written import LIST
from samestep.common.ledger import exchanges_of
from samestep.common.program import SKIPPED, TrainState
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime import records
from samestep.common.runtime.checkpoints.resuming import find_beginning, restore
from samestep.common.runtime.directory import (
    read_config,
    read_error,
    reserve_error,
    write_error,
    write_json,
)
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.records import RunResult, Throughput, load_result
from samestep.common.runtime.state_file import read_state, write_state
from samestep.common.steps.log import read_log
from samestep.common.techniques import Techniques
from samestep.common.workload.initial import init
from tests.cells import SIZED
from tests.children import in_child
from tests.conftest import RunCell

SIZED_MLP = RunConfig(workload=SIZED["mlp"], optimizer="sgd", batch_size=48, steps=12)
DATA = Path(__file__).parents[2] / "data"
STATE = TrainState(1, {"bias": np.zeros(2)}, {})

# fmt: off
PROMISED = [
    "schema_version", "status", "config", "framework", "strategy", "workload", "mesh", "dtype", "seed",
    "steps", "global_batch_size", "optimizer", "losses", "metric_name", "metric_value", "metric_direction",
    "examples_per_second", "step_seconds_median", "startup_seconds", "compile_seconds", "parity", "predicted",
    "exchanges", "processes", "cores", "attempt", "versions", "machine", "git_commit", "dataset_sha256",
    "workload_digest", "command", "device_note", "backend", "emulation", "step_times", "conditions", "state_sha256",
    "resumed_at", "lost_steps", "saves", "hosts", "step_parts", "no_parts",
]
PROMISED_WITHIN = {
    "examples_per_second": [
        "median", "slowest_window", "fastest_window", "windows",
    ],
    "parity": [
        "reference", "steps", "max_relative_loss", "max_absolute_weight", "passed", "reason",
    ],
    "exchanges": [
        "name", "count_per_step", "bytes_per_step",
    ],
    "processes": [
        "role", "rank", "device", "params_bytes", "params_peak_bytes", "gradients_bytes", "optimizer_bytes",
        "source", "peak_rss_bytes", "sent_bytes_per_step", "received_bytes_per_step", "measures",
        "sends", "busy_seconds", "idle_seconds",
    ],
}
# fmt: on


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("numpy:oracle"),
        pytest.param("torch:ddp", marks=pytest.mark.torch),
        pytest.param("tf:mirrored", marks=pytest.mark.tf),
    ],
)
def left(
    request: pytest.FixtureRequest, run_cell: RunCell, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunResult, Path]:
    """A real run: what the launcher returned, and its directory."""
    path = tmp_path_factory.mktemp("left") / "run"
    devices = 1 if request.param == "numpy:oracle" else 2
    return run_cell(request.param, SIZED["mlp"], devices=devices, dtype="float64", steps=12, out=str(path)), path


def test_a_result_reads_as_what_it_was(left: tuple[RunResult, Path]) -> None:
    result, path = left
    assert load_result(path) == result
    assert result.config == read_config(path)
    assert result.schema_version == records.SCHEMA_VERSION
    assert not (path / "error.json").exists()


def test_a_result_has_every_field_that_reports_read(left: tuple[RunResult, Path]) -> None:
    values = json.loads((left[1] / "result.json").read_text())
    assert set(PROMISED) <= set(values)
    for name, fields in PROMISED_WITHIN.items():
        parts = values[name] if isinstance(values[name], list) else [values[name]]
        assert all(set(fields) <= set(part) for part in parts)
    assert values["processes"]
    assert values["exchanges"] or values["framework"] == "numpy"
    assert len(values["losses"]) == values["steps"] == 12


def test_every_process_says_what_it_sent_and_how_busy_it_was(left: tuple[RunResult, Path]) -> None:
    """In the observed step; what its devices share is on the row of the first of them."""
    result, _ = left
    assert exchanges_of(result.processes[0].sends) == result.exchanges
    for role in {row.role for row in result.processes}:
        first, *others = [row for row in result.processes if row.role == role]
        assert first.busy_seconds > 0
        assert first.idle_seconds >= 0
        assert bool(first.sends) is (result.framework != "numpy")
        assert all(not row.sends and row.busy_seconds is row.idle_seconds is None for row in others)


def test_a_result_says_itself_how_much_was_sent_and_how_much_the_fullest_device_held(
    left: tuple[RunResult, Path],
) -> None:
    result, _ = left
    first, *others = result.processes
    fuller = dataclasses.replace(first, optimizer_bytes=10**9, sent_bytes_per_step=0.5, activations_bytes=10**8)
    unknown = dataclasses.replace(first, activations_bytes=None)
    changed = dataclasses.replace(result, processes=[first, *others, fuller, unknown])
    assert changed.sent_bytes == result.sent_bytes + first.sent_bytes_per_step + 0.5
    assert (changed.state_bytes, changed.activations_bytes) == (fuller.state_bytes, 10**8)
    assert dataclasses.replace(result, processes=[unknown]).activations_bytes is None
    nothing = dataclasses.replace(result, processes=[])
    assert (nothing.sent_bytes, nothing.state_bytes, nothing.activations_bytes) == (0, None, None)


def test_a_speed_is_the_median_of_the_windows_with_the_slowest_and_the_fastest(left: tuple[RunResult, Path]) -> None:
    result, path = left
    windows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    rates = [result.global_batch_size * len(window["losses"]) / window["seconds"] for window in windows[1:]]
    assert len(rates) == 11
    assert result.examples_per_second == Throughput(statistics.median(rates), min(rates), max(rates), 11)


def test_a_run_leaves_the_files_that_were_promised(left: tuple[RunResult, Path]) -> None:
    result, path = left
    roles = {row.role for row in result.processes}
    names = {"config.json", "metrics.jsonl", "result.json", LIST}
    names |= {f"{role}.log" for role in roles} | {f"process-{role}.json" for role in roles}
    assert {file.name for file in path.iterdir()} == names
    assert read_log(path).losses == result.losses
    assert not any(file.stat().st_mode & 0o111 for file in path.iterdir())


def test_the_weights_were_judged_before_the_state_was_removed(left: tuple[RunResult, Path]) -> None:
    result, path = left
    assert (result.parity.max_absolute_weight is not None) is (result.framework != "numpy")
    assert not (path / "state.npz").exists()


@pytest.mark.parametrize("parity", [True, False])
def test_a_state_is_kept_for_whoever_asks(run_cell: RunCell, tmp_path: Path, parity: bool) -> None:
    path = tmp_path / "run"
    fields = {"dtype": "float64", "steps": 3, "out": str(path), "parity": parity, "keep_state": True}
    result = run_cell("numpy:oracle", SIZED["mlp"], **fields)
    assert read_state(path).step == 3
    assert "--keep-state" in result.command


@pytest.mark.parametrize(
    ("fields", "needed"), [({}, True), ({"parity": False}, False), ({"parity": False, "keep_state": True}, True)]
)
def test_a_state_that_nobody_reads_is_not_even_written(fields: dict[str, bool], needed: bool) -> None:
    assert launch_of(RunConfig(**fields)).needs_state is needed


@pytest.fixture
def damaged(tmp_path: Path, run_cell: RunCell) -> Callable[[Callable[[dict], object]], str]:
    """The one line about a result that something was done to."""

    def damaged(change: Callable[[dict], object]) -> str:
        run_cell("numpy:oracle", SIZED["mlp"], dtype="float64", steps=3, out=str(tmp_path / "run"))
        path = tmp_path / "run" / "result.json"
        values = json.loads(path.read_text())
        values = change(values) or values
        path.write_text(json.dumps(values))
        with pytest.raises(ConfigError) as caught:
            load_result(tmp_path / "run")
        assert str(tmp_path / "run") in str(caught.value)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return damaged


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda values: values.pop("losses") and None, "losses"),
        (lambda values: values.update(steps="many"), "steps"),
        (lambda values: values["parity"].update(steps=None), "parity.steps"),
        (lambda values: values["processes"][0].pop("rank") and None, "processes.0.rank"),
        (lambda values: values["config"].update(seed="x"), "seed"),
        (lambda values: [values], "result"),
        (lambda values: "a word", "result"),
        (lambda values: values.update(schema_version=99), "schema_version"),
        (lambda values: values.update(schema_version="one"), "schema_version"),
        (lambda values: values.pop("schema_version") and None, "schema_version"),
    ],
    ids=["lost", "word", "nested", "listed", "config", "list", "text", "newer", "spelled", "unversioned"],
)
def test_a_damaged_result_is_one_line_that_names_the_place(damaged, change, place: str) -> None:
    assert place in damaged(change)


@pytest.mark.parametrize("content", [None, "", "{", "\0"])
def test_a_result_that_cannot_be_read_is_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(ConfigError, match=r"holds no readable result\.json"):
        load_result(tmp_path)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_result_of_an_older_version_is_refused_in_one_line(tmp_path: Path, version: int) -> None:
    values = json.loads((DATA / "ddp" / "result.json").read_text()) | {"schema_version": version}
    (tmp_path / "result.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError) as failed:
        load_result(tmp_path)
    path = tmp_path / "result.json"
    assert str(failed.value) == f"{path} was written by an older samestep (schema_version {version}); run it again."


def test_a_configuration_reads_as_what_it_was(tmp_path: Path) -> None:
    config = RunConfig(options={"reduce": "ring"}, techniques=Techniques(2, 0.5), learning_rate=1e-3, mesh="data=2")
    write_json(tmp_path / "config.json", config)
    assert read_config(tmp_path) == config


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{}", '{"techniques": {"speed": 3}}', '{"techniques": {}, "x": 1}']
)
def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"holds no readable config\.json"):
        read_config(tmp_path)


def test_a_state_reads_as_what_it_was(tmp_path: Path) -> None:
    params = {"hidden/kernel": np.arange(6.0).reshape(2, 3), "output/bias": np.float32([1.5])}
    write_state(tmp_path, TrainState(7, params, {"momentum": {name: value * 2 for name, value in params.items()}}))
    state = read_state(tmp_path)
    assert state.step == 7
    for held, times in ((state.params, 1), (state.slots["momentum"], 2)):
        assert list(held) == list(params)
        for name, value in params.items():
            assert held[name].dtype == value.dtype
            np.testing.assert_array_equal(held[name], value * times)
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


def with_local_state(step: int, devices: int) -> TrainState:
    """A state of the sized MLP, with buffers, and with an array of every device's own."""
    params = init(parse(SIZED_MLP).workload.model, 0)
    local = tuple(
        {"residual/hidden": np.full(3, rank, np.float32), "scale": np.float64(rank + 0.5)} for rank in range(devices)
    )
    buffers = {"norm/mean": np.float32([0.25, 0.5]), "count": np.int64(step)}
    return TrainState(step, params, {"momentum": params}, buffers, local)


@pytest.mark.parametrize("devices", [0, 1, 2, 11])
def test_buffers_and_local_state_read_as_what_they_were(tmp_path: Path, devices: int) -> None:
    wanted = with_local_state(7, devices)
    write_state(tmp_path, wanted)
    state = read_state(tmp_path)
    assert state.step == 7
    assert list(state.slots) == ["momentum"]
    assert len(state.local) == devices
    pairs = [
        (state.params, wanted.params),
        (state.buffers, wanted.buffers),
        (state.slots["momentum"], wanted.slots["momentum"]),
        *zip(state.local, wanted.local, strict=True),
    ]
    for held, right in pairs:
        assert list(held) == list(right)
        for name, value in right.items():
            assert (held[name].dtype, held[name].shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(held[name], value)


def test_updates_are_the_steps_that_were_not_skipped(tmp_path: Path) -> None:
    """Files of earlier versions have only a list of them, in what every rank keeps."""
    write_state(tmp_path, TrainState(7, {"bias": np.zeros(2)}, {}, skipped=3))
    assert read_state(tmp_path).updates == 4
    write_state(tmp_path, TrainState(7, {"bias": np.zeros(2)}, {}, local=({SKIPPED: np.array([0, 5])},) * 2))
    assert (read_state(tmp_path).skipped, read_state(tmp_path).updates) == (2, 5)
    write_state(tmp_path, TrainState(7, {"bias": np.zeros(2)}, {}, skipped=8))
    with pytest.raises(ConfigError, match="its skipped is 8, not one whole number from 0 to 7"):
        read_state(tmp_path)


def test_a_state_that_has_no_buffers_or_local_state_names_none_in_its_file(tmp_path: Path) -> None:
    write_state(tmp_path, TrainState(1, {"bias": np.zeros(2)}, {"momentum": {"bias": np.ones(2)}}))
    with np.load(tmp_path / "state.npz") as file:
        assert sorted(file.files) == ["params/bias", "slots/momentum/bias", "step"]


@pytest.mark.torch
@pytest.mark.parametrize(("held", "devices"), [(0, 2), (2, 2), (2, 1), (1, 2), (3, 2)])
def test_local_state_continues_only_on_as_many_devices(tmp_path: Path, held: int, devices: int) -> None:
    write_state(tmp_path, dataclasses.replace(with_local_state(7, held), buffers={}))
    asked = dataclasses.replace(SIZED_MLP, strategy="ddp", devices=devices, start_from=str(tmp_path))
    run = parse(asked)
    note = check_launch(run, launch_of(asked))
    starts_anew = held not in (0, devices)
    assert note == (
        f"--start-from {tmp_path} has local state (residual, scale) of {count(held, 'device')}; on {devices} it is reset."
        if starts_anew
        else ""
    )
    taken: list[object] = []
    program = types.SimpleNamespace(restore=taken.append, step=taken.append, losses=list, agree=lambda value: value)
    beginning = find_beginning(tmp_path / "run", run, launch_of(asked))
    assert (beginning.begun, beginning.step, beginning.checkpoint) == (7, 7, None)
    restore(program, beginning, run, "a batch")
    batch, state = taken
    assert batch == "a batch", "a step is thrown away before"
    assert len(state.local) == (0 if starts_anew else held)


def test_what_is_written_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_json(tmp_path / "one.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "one.json", {"a": object()})
    assert json.loads((tmp_path / "one.json").read_text()) == {"a": 1}


def test_where_there_is_no_room_nothing_is_left(tmp_path: Path) -> None:
    def fill() -> list[str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        for write, value in ((partial(write_json, tmp_path / "one.json"), {}), (partial(write_state, tmp_path), STATE)):
            with pytest.raises(OSError, match="File too large"):
                write(value)
        return [path.name for path in tmp_path.iterdir()]

    assert in_child(fill) == []


# --- error.json -------------------------------------------------------------------------------------------------------


def test_a_reserved_error_stands_for_a_run_that_was_cut_off(tmp_path: Path) -> None:
    reserve_error(tmp_path)
    values = json.loads((tmp_path / "error.json").read_text())
    assert values["type"] == "WorkerFailed"
    assert "was cut off before it ended" in values["message"]
    assert read_error(tmp_path) is None  # no process has said anything


def test_an_error_is_written_in_place_and_needs_no_further_room(tmp_path: Path) -> None:
    reserve_error(tmp_path)
    before = (tmp_path / "error.json").stat()
    write_error(tmp_path, "rank-1", Diverged("the loss of step 3 is nan"))
    after = (tmp_path / "error.json").stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert [file.name for file in tmp_path.iterdir()] == ["error.json"]


@pytest.mark.parametrize("kind", ERRORS.values())
def test_an_error_of_ours_is_read_as_the_error_it_was(tmp_path: Path, kind: type[BaseException]) -> None:
    reserve_error(tmp_path)
    write_error(tmp_path, "rank-1", kind("what happened"))
    role, error = read_error(tmp_path) or ("", None)
    assert (role, type(error), str(error)) == ("rank-1", kind, "what happened")


def test_any_other_error_is_told_by_its_type_and_first_line(tmp_path: Path) -> None:
    reserve_error(tmp_path)
    write_error(tmp_path, "rank-0", IndexError("\nout of range\nand more"))
    role, error = read_error(tmp_path) or ("", None)
    assert (role, type(error), str(error)) == ("rank-0", WorkerFailed, "IndexError: out of range")
    said = (
        "Exception encountered when calling Net.call().\n\n\x1b[1mno setter\x1b[0m\n\nArguments received by Net.call():"
    )
    write_error(tmp_path, "rank-0", AttributeError(said), first=False)  # Keras' first line names only a layer
    assert str((read_error(tmp_path) or ("", None))[1]).endswith("calling Net.call(). no setter")


def test_the_first_error_is_the_cause_and_stays_unless_the_parent_knows_better(tmp_path: Path) -> None:
    reserve_error(tmp_path)
    write_error(tmp_path, "rank-1", Diverged("first"))
    write_error(tmp_path, "rank-0", RuntimeError("its echo"))
    assert str((read_error(tmp_path) or ("", None))[1]) == "first"
    write_error(tmp_path, "parent", WorkerFailed("both, and why"), first=False)
    assert str((read_error(tmp_path) or ("", None))[1]) == "both, and why"


def test_a_long_error_is_replaced_by_a_short_one_cleanly(tmp_path: Path) -> None:
    reserve_error(tmp_path)
    write_error(tmp_path, "parent", WorkerFailed("x" * 10_000), first=False)
    write_error(tmp_path, "parent", WorkerFailed("short"), first=False)
    assert str((read_error(tmp_path) or ("", None))[1]) == "short"


def test_the_fields_of_a_result_and_of_its_promise_are_one_list() -> None:
    assert {field.name for field in dataclasses.fields(RunResult)} == {
        *PROMISED,
        "first_step",
        "compiled",
        "uncounted",
        "by_host",
    }
