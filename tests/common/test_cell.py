"""A cell is read once, and its spelling is the one that it was read from."""

import dataclasses

import pytest

from samestep.common.catalog import catalogue
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import ORACLE, RunConfig

SPELLINGS = (
    "torch:ddp",
    "torch:pp+schedule=1f1b+microbatches=8",
    "torch:pp+microbatches=8+schedule=1f1b+clip_norm=1",
    "torch:hybrid+mesh=pipe=2,tensor=2+devices=4",
    "tf:mirrored+width=64+seed=3",
)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_spelling_of_a_cell_is_the_one_that_it_was_read_from(spelling: str) -> None:
    assert str(Cell.parse(spelling)) == spelling
    assert Cell.parse(str(Cell.parse(spelling))) == Cell.parse(spelling)


def test_every_strategy_is_a_cell() -> None:
    for framework, row in catalogue():
        cell = Cell.parse(f"{framework}:{row.name}")
        assert (cell.framework, cell.strategy, cell.info) == (framework, row.name, row)
        assert cell.is_oracle == (cell.name == ORACLE)


def test_the_framework_may_be_left_out_where_it_is_clear() -> None:
    assert Cell.parse("mirrored+clip_norm=1") == Cell.parse("tf:mirrored+clip_norm=1")
    assert Cell.parse("single", "tf") == Cell("tf", "single")
    assert Cell.parse("ddp", "tf") == Cell("torch", "ddp")


@pytest.mark.parametrize(
    ("spelling", "told"),
    [
        ("single", "'single' is a strategy of several frameworks; give torch:single or tf:single."),
        ("dpd", "unknown strategy 'dpd'. Did you mean 'dp'?"),
        ("tf:ddp", "It is a strategy of torch: torch:ddp."),
        ("torch:ddp+clip_norm", "is not field=value"),
        ("torch:ddp+clip_norm=1+clip_norm=2", "gives 'clip_norm' twice"),
    ],
)
def test_what_is_no_cell_is_refused(spelling: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Cell.parse(spelling)
    assert told in str(caught.value)


def test_settings_come_and_go() -> None:
    cell = Cell.parse("torch:ddp+clip_norm=1").extended({"devices": 2, "batch_size": 96})
    assert str(cell) == "torch:ddp+clip_norm=1+devices=2+batch_size=96"
    assert cell.get("devices") == "2" and cell.get("seed") is None
    assert str(cell.without(("devices", "batch_size"))) == "torch:ddp+clip_norm=1"


def test_a_cell_does_not_set_anything_twice_nor_what_its_strategy_has_not() -> None:
    base = RunConfig()
    assert Cell.parse("torch:ddp").can_set("devices", base)
    assert not Cell.parse("torch:ddp+devices=2").can_set("devices", base)
    assert not Cell.parse("torch:hybrid+mesh=pipe=2,tensor=2").can_set("devices", base)
    assert not Cell.parse("torch:single").can_set("devices", base)
    assert Cell.parse("torch:pp").can_set("microbatches", base) and not Cell("torch", "ddp").can_set(
        "microbatches", base
    )
    assert Cell(*ORACLE.split(":")).can_set("width", base)
    assert not Cell(*ORACLE.split(":")).can_set("threads", base)


def test_the_cell_of_a_request_names_what_is_not_usual() -> None:
    config = Cell.parse("torch:pp+microbatches=2+clip_norm=1").apply_to(RunConfig(devices=2, mesh="pipe=2", seed=5))
    assert str(Cell.of(config)) == "torch:pp+microbatches=2+clip_norm=1.0"
    assert str(Cell.of(dataclasses.replace(config, mesh="pipe=2,data=2"))).endswith("+mesh=pipe=2,data=2")
