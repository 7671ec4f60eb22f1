"""What varies becomes rows, each named by a cell that says alone what it runs."""

import itertools

import pytest

from samestep.common.catalog import catalogue
from samestep.common.cell import CELL_FIELDS, Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import flags
from samestep.common.request import ORACLE, RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from samestep.common.workload.table import WORKLOADS, size_names
from samestep.experiments.comparing.comparison_request import describe
from samestep.experiments.comparing.plan import make_plan

PP = "torch:pp+schedule=1f1b"


def cells(**given: object) -> tuple[str, ...]:
    return tuple(map(str, make_plan(describe(given)).cells))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"strategies": "ddp,mirrored"}, ["torch:ddp", "tf:mirrored"]),
        ({"strategies": "ddp", "devices": "1,2"}, ["torch:ddp+devices=1", "torch:ddp+devices=2"]),
        ({"strategies": "ddp", "devices": [1, 2]}, ["torch:ddp+devices=1", "torch:ddp+devices=2"]),
        ({"strategies": "ddp", "devices": "4"}, ["torch:ddp"]),
        (
            {"strategies": ["ddp", "torch:single", "torch:hybrid+mesh=pipe=2,tensor=2"], "devices": "2,4"},
            ["torch:ddp+devices=2", "torch:ddp+devices=4", "torch:single", "torch:hybrid+mesh=pipe=2,tensor=2"],
        ),
        (
            {"strategies": [PP, "ddp"], "vary": {"microbatches": [2, 4]}},
            [f"{PP}+microbatches=2", f"{PP}+microbatches=4", "torch:ddp"],
        ),
        (
            {"strategies": [f"{PP}+microbatches=8", PP], "vary": {"microbatches": "2,4"}},
            [f"{PP}+microbatches=8", f"{PP}+microbatches=2", f"{PP}+microbatches=4"],
        ),
        (
            {"strategies": "pp", "vary": {"devices": (2, 4), "microbatches": (2, 4)}},
            [f"torch:pp+devices={n}+microbatches={m}" for n in (2, 4) for m in (2, 4)],
        ),
        ({"strategies": "ddp", "vary": {"threads": [1, 2]}}, ["torch:ddp+threads=1", "torch:ddp+threads=2"]),
        (
            {"strategies": "ddp", "vary": {"bandwidth": ["200mbit", "1gbit"]}},
            ["torch:ddp+bandwidth=200mbit", "torch:ddp+bandwidth=1gbit"],
        ),
        (
            {"strategies": "ddp", "require": "fsdp", "devices": "2,4"},
            ["torch:ddp+devices=2", "torch:ddp+devices=4", "torch:fsdp+devices=2", "torch:fsdp+devices=4"],
        ),
        (
            {"strategies": "ddp", "vary": {"dtype": ["float32", "float64"]}},
            ["torch:ddp+dtype=float32", "torch:ddp+dtype=float64"],
        ),
    ],
)
def test_each_row_varies_in_what_it_has(given: dict[str, object], wanted: list[str]) -> None:
    assert cells(**given) == (ORACLE, *wanted)


@pytest.mark.parametrize("name", ["width", "batch-size", "clip_norm", "seed"])
def test_the_oracle_varies_in_what_decides_its_numbers(name: str) -> None:
    parts = [f"+{name.replace('-', '_')}={value}" for value in (1, 2)]
    wanted = [f"{cell}{part}" for cell in (ORACLE, "torch:ddp") for part in parts]
    assert cells(strategies="ddp", vary={name: [1, 2]}) == tuple(wanted)


def test_a_cell_alone_says_what_its_row_runs() -> None:
    given = {"strategies": "pp", "devices": "2,4", "workload": "digits-mlp+width=32", "batch_size": 96}
    asked = describe({**given, "vary": {"width": [16, 64], "microbatches": [2, 4], "clip_norm": [1, 2.5]}})
    found = set()
    for cell in make_plan(asked).cells:
        if cell.framework == "torch":
            run = parse(cell.apply_to(asked.base))
            found.add((run.num_devices, run.workload.model.width, run.options.microbatches, run.techniques.clip_norm))
            assert parse(cell.apply_to(RunConfig(batch_size=96))) == run or run.workload.model.width == 32
    assert found == set(itertools.product((2, 4), (16, 64), (2, 4), (1.0, 2.5)))


def test_a_name_in_a_cell_has_one_meaning() -> None:
    fields, techniques = {*CELL_FIELDS, "mesh"}, {*flags(Techniques)}
    options = {name for _, row in catalogue() for name in flags(row.options)}
    sizes = {name for workload in WORKLOADS for name in size_names(workload)}
    assert {"devices", "batch_size", "dtype", "threads", "seed"} <= fields
    for one, other in itertools.combinations((fields, techniques, options, sizes), 2):
        assert not one & other


def test_the_rows_that_a_user_named_or_requires_are_all_that_come_of_them() -> None:
    plan = make_plan(describe({"require": "torch:ddp", "framework": "torch", "devices": "2,4"}))
    assert plan.named == plan.required == tuple(map(Cell.parse, ("torch:ddp+devices=2", "torch:ddp+devices=4")))
    assert Cell.parse("torch:fsdp+devices=2") in plan.cells
    assert not any(cell.framework == "tf" for cell in plan.cells)
    assert (plan.rounds(Cell.parse(ORACLE)), plan.rounds(plan.named[0])) == (1, 1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"strategies": "ddp,torch:ddp"},
            "--strategies names torch:ddp twice; name it once, and measure it more often",
        ),
        ({"require": "ddp,ddp"}, "--require names torch:ddp twice"),
        ({"strategies": "ddp", "devices": "2,2"}, "--vary devices lists 2 twice; list each value once."),
        ({"strategies": "ddp", "reference": "pp"}, "unknown reference 'torch:pp'"),
        ({"strategies": "ddp", "reference": ORACLE}, "unknown reference 'numpy:oracle'"),
        (
            {"strategies": "ddp,pp", "reference": "ddp", "devices": "2,4"},
            "Choose from: torch:ddp+devices=2, ",
        ),
        (
            {"strategies": "pp", "vary": {"microbatchs": [2]}},
            "unknown name in --vary 'microbatchs'. Did you mean 'micro",
        ),
        (
            {"strategies": "ddp", "vary": {"microbatches": [2]}},
            "it is an option of torch:pp, torch:hybrid, and of no row",
        ),
        ({"strategies": "torch:single", "devices": "1,2"}, "--vary devices: no row can differ in it"),
        ({"strategies": "ddp", "vary": {"steps": [1, 2]}}, "--vary steps: rows do not differ in it; give one --steps."),
        (
            {"strategies": "ddp", "vary": {"mesh": "data=2"}},
            "--vary mesh: rows do not differ in it; write it into cells.",
        ),
        ({"strategies": "ddp", "vary": {"width": ""}}, "--vary 'width=' has an empty value; write it as in width=2,4."),
        (
            {"strategies": "ddp", "vary": {"batch_size": [8]}, "batch_size": 8},
            "--vary batch_size and --batch-size both",
        ),
        ({"strategies": "ddp", "vary": {"devices": [1]}, "devices": "1,2"}, "--vary devices and --devices both"),
        ({"vary": [1]}, "vary is [1], not names with their values"),
        ({"framework": "tf", "strategies": "ddp"}, "both choose the rows"),
        ({"repeats": 0}, "--repeats is 0; give a whole number from 1 up."),
    ],
)
def test_what_cannot_be_planned_is_one_line(given: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cells(**given)
    assert told in str(caught.value)
