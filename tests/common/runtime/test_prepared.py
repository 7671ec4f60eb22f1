"""A run directory that was edited, and an environment that is not the run's: one line from the worker, nothing trained."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import read_config
from samestep.common.runtime.parent import attempts
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.worker import worker
from tests.children import in_child

DDP = RunConfig(strategy="ddp", devices=2, workload="digits-mlp+width=32", batch_size=48, steps=3)
SERVERS = dataclasses.replace(DDP, framework="tf", strategy="parameter_server")
TPU = dataclasses.replace(DDP, framework="tf", strategy="tpu")
ENVIRONMENT = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Prepares a run, lets a function spoil its directory, and returns the one line of the worker that is started there."""
    monkeypatch.setattr(worker, "ProcessFile", lambda *given: pytest.fail("it trained"))
    monkeypatch.setattr(worker, "enable_stack_dumps", lambda: None)  # pytest keeps stderr from it

    def refused(config: RunConfig, spoil: Callable[[Path], object], **environment: str) -> str:
        directory = prepare(parse(config), launch_of(dataclasses.replace(config, out=str(tmp_path / "run"))))
        spoil(directory)
        for name in (*ENVIRONMENT, "TF_CONFIG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert worker.main([str(directory)]) == 2
        told = capsys.readouterr().err
        assert told.startswith("samestep: ") and told.count("\n") == 1
        assert len(told) <= len("samestep: ") + 400 + len("\n")
        assert not (directory / "result.json").exists()
        return told

    return refused


def edit(**fields: object) -> Callable[[Path], object]:
    def spoil(directory: Path) -> None:
        path = directory / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return spoil


def write(content: str) -> Callable[[Path], object]:
    return lambda directory: (directory / "config.json").write_text(content)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"steps": "3"}, "--steps is '3'; give a whole number."),
        ({"steps": None}, "steps is None, and the run would have 200; prepare it again."),
        ({"steps": True}, "--steps is True"),
        ({"steps": 5.5}, "--steps is 5.5"),
        ({"steps": [3]}, "--steps is [3]"),
        ({"steps": -1}, "--steps is -1"),
        ({"batch_size": 0}, "--batch-size is 0"),
        ({"batch_size": None}, "batch_size is None, and the run would have 128"),
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"optimizer": "adam"}, "unknown optimizer 'adam'"),
        ({"threads": 0}, "--threads is 0"),
        ({"mesh": [["data", 2]]}, "--mesh is [['data', 2]]; give text."),
        ({"mesh": "data=4"}, "--devices 2 disagrees with --mesh data=4"),
        ({"devices": 3}, "--devices 3 disagrees with --mesh data=2"),
        ({"devices": None}, "devices is None, and the run would have 2"),
        ({"timeout_seconds": 0}, "--timeout-seconds is 0.0; give a finite number from 1 up."),
        ({"timeout_seconds": -1}, "--timeout-seconds is -1.0"),
        ({"learning_rate": float("nan")}, "--learning-rate is nan"),
        ({"learning_rate": float("inf")}, "--learning-rate is inf"),
        ({"learning_rate": None}, "learning_rate is None"),
        ({"techniques": {"clip_norm": -1}}, "--clip-norm is -1.0"),
        ({"techniques": None}, "techniques is None, not an object"),
        ({"techniques": {"pace": 3}}, "unknown field 'pace'. Choose from: accumulation_steps, clip_norm"),
        ({"options": None}, "options is None, not an object"),
        ({"options": [1]}, "options is [1], not an object"),
        ({"options": {"speed": 3}}, "unknown option of torch:ddp 'speed'. Choose from: bucket_bytes."),
        ({"options": {"bucket_bytes": [5]}}, "--bucket-bytes is [5]; give a whole number."),
        ({"options": {}}, "options is {}, and the run would have {'bucket_bytes': None}"),
        ({"stepz": 3}, "unknown field 'stepz'. Did you mean 'steps'?"),
        ({"strategy": "../../x"}, "unknown torch strategy '../../x'"),
        ({"framework": "os"}, "unknown framework 'os'"),
        ({"workload": "w" * 100_000}, "unknown workload 'www"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_an_edited_request_is_read_like_a_command_line(refused: Refused, fields: dict[str, object], said: str) -> None:
    assert said in refused(DDP, edit(**fields), **ENVIRONMENT)


def test_an_option_of_another_type_is_refused(refused: Refused) -> None:
    assert "--tpu is 5; give text." in refused(TPU, edit(options={"tpu": 5, "tpu_topology": None}))


@pytest.mark.parametrize(
    "content", ["null", "5", '"x"', "[]", "{}", "", "[" * 100_000, '{"steps": ' + "9" * 5000 + "}"]
)
def test_a_file_that_is_no_request_is_told_so(refused: Refused, content: str) -> None:
    assert "holds no readable config.json: " in refused(DDP, write(content), **ENVIRONMENT)


def test_a_pipe_in_place_of_the_file_is_not_waited_for(refused: Refused) -> None:
    def spoil(directory: Path) -> None:
        (directory / "config.json").unlink()
        os.mkfifo(directory / "config.json")

    assert "it is not a plain file" in refused(DDP, spoil, **ENVIRONMENT)


def test_a_directory_of_a_name_that_cannot_be_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "enable_stack_dumps", lambda: None)
    assert worker.main(["d" * 5000]) == 2
    told = capsys.readouterr().err
    assert "holds no readable config.json: File name too long" in told
    assert told.count("\n") == 1 and len(told) <= 420


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"RANK": "x"}, "RANK is 'x'; give a whole number from 0 to 1."),
        ({"RANK": "9"}, "RANK is '9'; give a whole number from 0 to 1."),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"RANK": "9" * 5000}, "RANK is '999"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK is 'x'"),
        ({"MASTER_PORT": "PORT"}, "MASTER_PORT is 'PORT'; give a whole number from 1 to 65535."),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is '70000'"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is two, but the run was prepared for 2 processes"),
        ({"TORCHELASTIC_RESTART_COUNT": "many"}, "TORCHELASTIC_RESTART_COUNT is 'many'"),
    ],
)
def test_an_environment_without_numbers_is_told_which(refused: Refused, changed: dict[str, str], said: str) -> None:
    assert said in refused(DDP, lambda directory: None, **{**ENVIRONMENT, **changed})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[" * 100_000,
        '{"cluster": 5, "task": {}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"chief": ["a:1"], "worker": ["a:2", "a:3"], "ps": ["a:4"]}, "task": {"type": "ps", "index": 1}}',
    ],
)
def test_a_cluster_that_is_not_the_runs_is_told_so(refused: Refused, text: str) -> None:
    assert "is not a task of this run; start it by" in refused(SERVERS, lambda directory: None, TF_CONFIG=text)


# --- a process that is started twice ----------------------------------------------------------------------------------


def claimed(directory: Path, index: int) -> str:
    try:
        worker.claim_role(directory, f"rank-{index}", index)
    except WorkerFailed as error:
        return str(error)
    return ""


def test_a_process_that_is_started_twice_is_refused_while_the_first_one_runs(tmp_path: Path) -> None:
    directory = prepare(parse(DDP), launch_of(dataclasses.replace(DDP, out=str(tmp_path / "run"))))
    assert in_child(lambda: claimed(directory, 0)) == ""
    assert claimed(directory, 0) == "", "the first one has ended"
    read_config(directory)  # which opens and closes the file that is locked
    told = f"rank-0 was started twice: another process is rank-0 of {directory}; start each process once"
    assert in_child(lambda: claimed(directory, 0)) == told
    assert in_child(lambda: claimed(directory, 1)) == ""
    (directory / "config.json").unlink()
    assert claimed(directory, 0) == "", "whatever is wrong with the file is told by whoever reads it"


def test_of_two_runs_that_begin_at_once_each_has_its_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    free = [Path("runs/1"), Path("runs/1"), Path("runs/2")]  # as both find them
    monkeypatch.setattr(attempts, "new_directory", lambda name: free.pop(0))
    assert [prepare(parse(DDP), launch_of(DDP)) for _ in range(2)] == [Path("runs/1"), Path("runs/2")]


def test_what_is_in_the_way_of_a_new_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    with pytest.raises(ConfigError) as refused:
        prepare(parse(DDP), launch_of(DDP))
    assert f"cannot be written ({tmp_path / 'runs'} is not a directory)" in str(refused.value)
