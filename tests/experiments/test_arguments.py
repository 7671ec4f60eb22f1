"""Flags and cells become requests, and a result's command becomes the request that it came from."""

import dataclasses
import re
import shlex
import types
from collections.abc import Callable

import pytest

from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell, parse_cells
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.run import arguments, as_config, parse
from samestep.common.runtime.records import RunResult
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.experiments import advise, compare, diff, export, model, port, predict, report, run, strategies
from samestep.experiments.cli.command_line import parse_run
from samestep.experiments.printing.columns import cell
from tests.cells import SIZED, every_row, usual
from tests.conftest import RunCell
from tests.experiments.comparisons import PASSED, result_of

BOTH = Techniques(accumulation_steps=2, clip_norm=1.0)


def completed(config: RunConfig) -> RunConfig:
    return as_config(parse(config), launch_of(config))


def given(line: str) -> RunConfig:
    """The request of a command line `samestep run ...`."""
    program, *flags = shlex.split(line.removeprefix("samestep "))
    assert program == "run"
    return parse_run(flags, "samestep run")


# --- techniques -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "techniques"),
    [
        ("", Techniques()),
        ("--clip-norm 1", Techniques(clip_norm=1.0)),
        ("--accumulation-steps 2", Techniques(accumulation_steps=2)),
        ("--accumulation-steps 2 --clip-norm 1", BOTH),
        ("--clip-norm=1e-3 --accumulation-steps=1", Techniques(clip_norm=1e-3)),
    ],
)
@pytest.mark.parametrize("where", ["--strategy ddp", "--framework tf --strategy mirrored", "--strategy pp"])
def test_techniques_are_flags_of_every_strategy(where: str, flags: str, techniques: Techniques) -> None:
    config = parse_run([*where.split(), *flags.split()], "samestep run")
    assert config.techniques == techniques
    assert parse(config).techniques == techniques


@pytest.mark.parametrize(
    ("spelling", "techniques"),
    [
        ("torch:ddp", Techniques()),
        ("torch:ddp+clip_norm=1+accumulation_steps=2", BOTH),
        ("tf:mirrored+accumulation_steps=2+clip_norm=1.0", BOTH),
        ("torch:pp+clip_norm=0.5+schedule=1f1b", Techniques(clip_norm=0.5)),
    ],
)
def test_techniques_are_parts_of_a_cell(spelling: str, techniques: Techniques) -> None:
    config = Cell.parse(spelling).apply_to(RunConfig())
    assert config.techniques == techniques
    assert not set(dataclasses.asdict(techniques)) & set(config.options)


def test_a_cell_overrides_the_techniques_that_it_names() -> None:
    base = RunConfig(techniques=Techniques(accumulation_steps=4, clip_norm=2.0))
    assert Cell.parse("torch:ddp").apply_to(base).techniques == base.techniques
    assert Cell.parse("torch:ddp+accumulation_steps=1").apply_to(base).techniques == Techniques(1, 2.0)
    assert Cell.parse("torch:ddp+clip_norm=1").apply_to(base).techniques == Techniques(4, 1.0)


def test_a_cell_leaves_the_rest_of_a_request_alone() -> None:
    base = RunConfig(workload=SIZED["mlp"], steps=3, seed=7, parity=True)
    config = Cell.parse("torch:pp+microbatches=2").apply_to(base)
    assert (config.framework, config.strategy) == ("torch", "pp")
    assert config.options == {"schedule": "gpipe", "microbatches": 2}
    assert config == dataclasses.replace(base, strategy="pp", options=config.options)


# --- where a cell stands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ("torch:ddp", "torch:ddp"),
        ("--strategy torch:ddp", "torch:ddp"),
        ("--steps 3 tf:mirrored", "tf:mirrored"),
        ("mirrored --steps 3", "tf:mirrored"),
        ("--strategy mirrored", "tf:mirrored"),
        ("--framework tf mirrored", "tf:mirrored"),
        ("--framework torch --strategy torch:ddp", "torch:ddp"),
        ("single", "torch:single"),
        ("--framework tf", "tf:single"),
        ("", "torch:single"),
        ("--sequence-parallel torch:tp", "torch:tp"),
        ("--schedule 1f1b pp", "torch:pp"),
        ("oracle --dtype float64", "numpy:oracle"),
    ],
)
def test_a_run_finds_its_cell(line: str, cell: str) -> None:
    config = parse_run(line.split(), "samestep run")
    assert f"{config.framework}:{config.strategy}" == cell
    assert config.steps == (3 if "--steps" in line else None)


def test_a_name_in_a_cell_may_be_spelled_as_its_flag() -> None:
    assert Cell.parse("torch:ddp+clip-norm=1") == Cell.parse("torch:ddp+clip_norm=1")


def test_a_run_takes_what_its_cell_sets_and_what_its_flags_set() -> None:
    config = parse_run(["torch:pp+schedule=1f1b+clip_norm=1", "--microbatches", "2", "--accumulation-steps", "2"], "x")
    assert config.options == {"schedule": "1f1b", "microbatches": 2}
    assert config.techniques == BOTH


def test_a_cell_may_have_a_mesh() -> None:
    spelling = "torch:hybrid+mesh=pipe=2,tensor=2+microbatches=2"
    for config in (Cell.parse(spelling).apply_to(RunConfig()), parse_run([spelling], "x")):
        assert config.mesh == "pipe=2,tensor=2"
        assert config.options["microbatches"] == 2
        assert parse(config).mesh.size == 4
    assert Cell.parse("torch:ddp").apply_to(RunConfig(mesh="data=2")).mesh == "data=2"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("torch:ddp", ["torch:ddp"]),
        ("torch:ddp,tf:mirrored", ["torch:ddp", "tf:mirrored"]),
        ("torch:ddp, fsdp+clip_norm=1,mirrored", ["torch:ddp", "torch:fsdp+clip_norm=1", "tf:mirrored"]),
        (
            "torch:hybrid+mesh=pipe=2,tensor=2,torch:fsdp+mesh=data=2,shard=2+clip_norm=1,ddp",
            ["torch:hybrid+mesh=pipe=2,tensor=2", "torch:fsdp+mesh=data=2,shard=2+clip_norm=1", "torch:ddp"],
        ),
    ],
)
def test_a_comma_separates_cells_except_within_a_mesh(text: str, cells: list[str]) -> None:
    assert list(map(str, parse_cells("--strategies", text))) == cells


@pytest.mark.parametrize(
    "spelling", ["torch:ddp", "torch:hybrid+mesh=pipe=2,tensor=2", "torch:pp+microbatches=2", "torch:fsdp+mesh=data=2"]
)
def test_a_result_is_named_as_its_cell(spelling: str) -> None:
    config = Cell.parse(spelling).apply_to(RunConfig())
    assert cell(result_of(parse(config), launch_of(config), PASSED)) == spelling


# --- the line that repeats a run --------------------------------------------------------------------------------------

REPEATED = [
    RunConfig(),
    RunConfig(strategy="ddp", devices=2, techniques=BOTH),
    RunConfig(strategy="ddp", devices=2, options={"bucket_bytes": 262144}, parity=False, threads=2),
    RunConfig(strategy="ddp", devices=3, batch_size=96, parity=True, start_from="runs/one leg", timeout_seconds=2.5),
    RunConfig(strategy="pp", devices=2, options={"schedule": "1f1b"}, techniques=Techniques(clip_norm=1e-7)),
    RunConfig(strategy="fsdp", mesh="data=2,shard=2", dtype="float64", optimizer="adamw", learning_rate=1e-3),
    RunConfig(strategy="tp", devices=2, workload=SIZED["transformer"], options={"sequence_parallel": True}),
    RunConfig(framework="tf", strategy="mirrored", devices=2, options={"reduce": "ring"}, techniques=BOTH),
    RunConfig(framework="tf", strategy="dtensor", mesh="data=2,tensor=2", options={"clients": 2}, seed=12345),
    RunConfig(framework="numpy", strategy="oracle", dtype="float64", steps=7, techniques=Techniques(4)),
]


@pytest.mark.parametrize("config", REPEATED, ids=lambda config: f"{config.framework}:{config.strategy}")
def test_the_flags_of_a_request_are_read_as_that_request(config: RunConfig) -> None:
    complete = completed(config)
    flags = arguments(complete)
    assert completed(parse_run(flags, "samestep run")) == complete
    assert arguments(completed(parse_run(flags, "samestep run"))) == flags


@pytest.mark.parametrize(("framework", "name"), [(framework, row.name) for framework, row in every_row()])
def test_the_flags_of_every_row_are_read_as_that_row(framework: str, name: str) -> None:
    row = strategy_info(framework, name)
    asked = RunConfig(
        framework=framework,
        strategy=name,
        workload=usual(row),
        devices=2 if row.axes else 1,
        dtype=row.dtypes[-1],
        batch_size=48,
        options=dataclasses.asdict(row.options()),
        techniques=Techniques(accumulation_steps=2),  # not every row can clip
    )
    complete = completed(asked)
    assert completed(parse_run(arguments(complete), "samestep run")) == complete


def test_where_files_go_is_left_out_of_the_line() -> None:
    asked = completed(RunConfig(strategy="ddp", devices=2, out="runs/here", prepare=True))
    flags = arguments(asked)
    assert not {"--out", "--prepare"} & set(flags)
    assert completed(parse_run(flags, "x")) == dataclasses.replace(asked, out=None, prepare=False)


@pytest.mark.torch
def test_the_command_of_a_result_with_techniques_repeats_its_run(run_cell: RunCell) -> None:
    spelling = "torch:ddp+clip_norm=1+accumulation_steps=2"
    result: RunResult = run_cell(spelling, SIZED["mlp"], devices=2, steps=3, dtype="float64")
    assert result.config.techniques == BOTH
    assert "--accumulation-steps 2 --clip-norm 1.0" in result.command
    assert "--out" not in result.command
    assert completed(given(result.command)) == dataclasses.replace(result.config, out=None)
    assert result.parity.passed, result.parity.reason
    assert cell(result) == "torch:ddp+accumulation_steps=2+clip_norm=1.0"
    assert Cell.parse(cell(result)).apply_to(RunConfig()).techniques == BOTH


def test_a_run_and_its_launch_divide_a_request_between_them() -> None:
    fields = {field.name for field in dataclasses.fields(RunConfig)}
    launch = {field.name for field in dataclasses.fields(Launch)}
    run = {field.name for field in dataclasses.fields(Run)}
    assert fields - launch - run == {"devices", "learning_rate"}, "which the mesh and the optimizer hold"


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("main", [run.main, compare.main], ids=["run", "compare"])
def test_help_opens_with_examples_that_are_requests(
    main: Callable[[list[str]], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    usage, examples = text.split("\n\n")[:2]
    assert usage.startswith(f"usage: samestep {main.__module__.rpartition('.')[2]} ") and "\n" not in usage
    assert max(map(len, examples.splitlines())) <= 80
    for line in examples.splitlines():
        program, command, *flags = shlex.split(line)
        assert program == "samestep"
        assert parse_run(flags, line) if command == "run" else compare._parser().parse_args(flags)
    assert text.index("most used:\n  --workload") < text.index("--seed")


@pytest.mark.parametrize(
    "command", [advise, diff, export, model, port, predict, report, strategies], ids=lambda each: each.__name__
)
def test_so_does_that_of_the_others_and_their_flags_are_there(
    command: types.ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        command.main(["--help"])
    usage, examples, rest = capsys.readouterr().out.split("\n\n", 2)
    assert not re.search("[a-z]- [a-z]", " ".join(rest.split())), "a line of the source ends within a word"
    name = f"samestep {command.__name__.rpartition('.')[2]} "
    assert usage.startswith(f"usage: {name}") and "\n" not in usage
    for line in examples.splitlines():
        assert len(line) <= 80 and line.startswith(f"  {name}".rstrip())
        assert all(
            re.search(rf"(?m)^ +(?:-\w.*, )?{flag}\b", rest)
            for flag in re.findall(r"(?<= )--?[a-z][\w-]*(?=[^\"]*$)", line)
        )
