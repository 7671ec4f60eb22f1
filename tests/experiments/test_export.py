"""Runs replayed into trackers: what is read back from their own files is what the run directory has."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.runtime.records import load_result
from samestep.experiments import export
from samestep.experiments.exporting import replay, to_tensorboard
from tests.results import REAL

LOSSES = load_result(REAL).losses


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs, one of them with the windows that it had."""
    for name in ("first", "second/1"):
        shutil.copytree(REAL, tmp_path / "runs" / name)
    windows = [(0.5, LOSSES[:1]), (2.0, LOSSES[1:])]
    step, lines = 0, []
    for seconds, losses in windows:
        step += len(losses)
        lines.append(json.dumps({"step": step, "seconds": seconds, "losses": losses}))
    (tmp_path / "runs" / "first" / "metrics.jsonl").write_text("\n".join(lines))
    return tmp_path / "runs"


def test_runs_are_found_and_named_after_their_place(runs: Path) -> None:
    assert replay.find_runs([runs]) == {"runs/first": runs / "first", "runs/second/1": runs / "second" / "1"}
    assert list(replay.find_runs([runs / "first", runs / "second"])) == ["first", "second/1"]


def test_two_runs_of_one_name_are_two(runs: Path) -> None:
    shutil.copytree(runs / "first", runs / "other" / "first")
    assert list(replay.find_runs([runs / "first", runs / "other" / "first"])) == ["first", "first-again"]


def test_a_replay_has_every_loss_and_the_times_of_its_windows(runs: Path) -> None:
    found = replay.read_replay("first", runs / "first")
    assert [(p.step, p.value) for p in found.curve if p.name == "loss"] == list(enumerate(LOSSES))
    speeds = [(p.step, p.value) for p in found.curve if p.name == "seconds_per_step"]
    assert speeds == [(0, 0.5), (len(LOSSES) - 1, 2.0 / (len(LOSSES) - 1))]
    assert found.ended == pytest.approx((runs / "first" / "metrics.jsonl").stat().st_mtime)
    assert found.started == pytest.approx(found.ended - 2.0), "the first point is at the end of its window"
    assert found.outcome["took_the_same_step"] == 1.0
    assert found.settings["cell"] == "torch:ddp"


def test_without_windows_the_losses_are_those_of_the_result(runs: Path) -> None:
    (runs / "first" / "metrics.jsonl").unlink()
    found = replay.read_replay("first", runs / "first")
    assert [point.value for point in found.curve] == list(LOSSES)


tensorboard_installed = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="pip install 'samestep[tensorboard]'"
)
mlflow_installed = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="pip install 'samestep[mlflow]'"
)


@tensorboard_installed
def test_tensorboard_reads_what_was_written(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))  # it would import TensorFlow
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    for _ in range(2):  # the second time takes the place of the first
        assert export.main([str(runs), "--to", "tensorboard", "-o", str(tmp_path / "board")]) == 0
    files = sorted((tmp_path / "board").rglob(to_tensorboard.FILE))
    assert [str(file.parent.relative_to(tmp_path / "board")) for file in files] == ["runs/first", "runs/second/1"]
    values = [(event.step, value) for event in EventFileLoader(str(files[0])).Load() for value in event.summary.value]
    curves: dict[str, list[tuple[int, float]]] = {}
    for step, value in values:
        held = value.tensor.float_val[:] or [0.0]
        curves.setdefault(value.tag, []).append((step, held[0]))
    assert [step for step, _ in curves["loss"]] == list(range(len(LOSSES)))
    assert [value for _, value in curves["loss"]] == pytest.approx(LOSSES, rel=1e-6)  # it keeps float32
    result = load_result(REAL)
    assert curves[f"outcome/{result.metric_name}"][0][1] == pytest.approx(result.metric_value, rel=1e-6)
    by_tag = {value.tag: value for _, value in values}
    assert by_tag["notes/command/text_summary"].tensor.string_val[0].decode() == result.command
    settings = HParamsPluginData.FromString(by_tag["_hparams_/session_start_info"].metadata.plugin_data.content)
    assert settings.session_start_info.hparams["cell"].string_value == "torch:ddp"
    assert settings.session_start_info.hparams["batch_size"].number_value == result.config.batch_size


@mlflow_installed
@pytest.mark.parametrize("store", ["odd://x", "http://127.0.0.1:1"])
def test_a_store_that_is_none_is_told_in_one_line(runs: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(
        ConfigError, match=f"-o {store}: MLflow says: .*; name a folder, or the URI of a server that runs"
    ):
        export.main([str(runs), "--to", "mlflow", "-o", store])


@mlflow_installed
def test_mlflow_reads_what_was_written(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mlflow.tracking import MlflowClient

    store = tmp_path / "mlruns"
    for _ in range(2):  # the second time finds the runs there
        assert export.main([str(runs), "--to", "mlflow", "-o", str(store)]) == 0
    assert capsys.readouterr().out.count("is there as run") == 2
    client = MlflowClient(tracking_uri=store.as_uri())
    experiment = client.get_experiment_by_name("samestep")
    assert experiment is not None
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(found) == {"runs/first", "runs/second/1"}
    run = found["runs/first"]
    history = sorted(client.get_metric_history(run.info.run_id, "loss"), key=lambda metric: metric.step)
    assert [(metric.step, metric.value) for metric in history] == list(enumerate(LOSSES))
    assert run.data.params["cell"] == "torch:ddp"
    assert run.data.tags["command"] == load_result(REAL).command
    assert run.info.status == "FINISHED"


@pytest.mark.parametrize("tracker", export.TRACKERS)
def test_a_tracker_that_is_missing(runs: Path, tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == tracker]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, tracker, None)
    with pytest.raises(Unavailable, match=rf"pip install 'samestep\[{tracker}\]'"):
        export.main([str(runs), "--to", tracker, "-o", str(runs / "out")])
    assert not (runs / "out").exists()


@tensorboard_installed
def test_a_damaged_run_does_not_keep_the_others(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "first" / "result.json").write_text("{")
    assert export.main([str(runs), "--to", "tensorboard", "-o", str(runs / "board")]) == 1
    told = capsys.readouterr()
    assert "not exported: " in told.err
    assert "second/1" in told.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{runs}", "--to", "wandb"], "unknown tracker 'wandb'"),
        (["{runs}", "--to", "dcp"], "It is the format of a state: --format dcp."),
        (["{runs}", "--format", "mlflow"], "It is a tracker: --to mlflow."),
        (["{runs}"], "--to"),
        (["{runs}/first/nothing", "--to", "tensorboard"], "is not there; name a directory that is"),
        pytest.param(
            ["{runs}", "--to", "tensorboard", "-o", "/proc/nowhere"], "cannot be written", marks=tensorboard_installed
        ),
    ],
)
def test_what_cannot_be_exported(runs: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        export.main([argument.format(runs=runs) for argument in arguments])
