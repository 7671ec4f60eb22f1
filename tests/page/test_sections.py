"""The sections on runs that lack something: no step was taken, nothing was timed, or numbers are not finite."""

import dataclasses
import itertools
import math
import re

import pytest

from benchmarks.cost.report import results as every_strategy
from samestep.common.cell import Cell
from samestep.common.ledger import Compiled, Send
from samestep.common.runtime.records import RunResult, Throughput
from samestep.common.runtime.step_parts import PARTS, StepParts
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.page import speed, step_parts
from samestep.experiments.page.curves import MOST_POINTS, thin
from samestep.experiments.page.loaded import Loaded, make_group
from samestep.experiments.page.page import page
from tests.page.runs import trained
from tests.results import made

GOOD = trained("torch:ddp", 10.0)
SEND = Send("backward", "all_reduce", "data", 2, 8)
COMPILED = Compiled("v4:2x2", 100, 20, 10, 1000, (), 130, 1000, True, "libtpu")
UNTRAINED = made("tf:tpu", judged=None, compiled=COMPILED, examples_per_second=None, losses=())


def page_of(*rows: Row) -> str:
    return page(Loaded((make_group("some", Comparison(rows), {}, 0),)))


def sections(text: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', text)


def judged(**changes: object) -> RunResult:
    return dataclasses.replace(GOOD, parity=dataclasses.replace(GOOD.parity, **changes))


def test_a_figure_of_very_many_lines_has_no_table_below_it() -> None:
    rows = [Row.of(Cell.parse(f"torch:ddp+seed={seed}"), trained("torch:ddp", 1000.0)) for seed in range(401)]
    many, few = (
        speed.write(Loaded((make_group("some", Comparison(tuple(part)), {}, 0),))) for part in (rows, rows[:400])
    )
    assert many is not None and few is not None
    assert "The numbers" not in many and "401 lines are too many for a table here" in many
    assert few.count("The numbers, examples per second") == 1


def test_a_sentence_says_why_a_row_is_slow() -> None:
    """The part that grew most, then the largest other one, if it is not small."""
    fast = dataclasses.replace(GOOD, examples_per_second=Throughput(100.0, 90.0, 110.0, 5), step_seconds_median=1.0)
    fast = dataclasses.replace(fast, step_parts=parts(computing=0.9, waiting=0.1))
    (row, *others), sends = GOOD.processes, (dataclasses.replace(SEND, count=3), dataclasses.replace(SEND, count=8))
    slow = dataclasses.replace(
        fast,
        examples_per_second=Throughput(4.0, 3.0, 5.0, 5),
        step_seconds_median=25.0,
        step_parts=parts(computing=1.0, update=1.5, waiting=17.75, python=4.75),
        processes=[dataclasses.replace(row, sends=sends), *others],
    )
    rows = [Row.of(Cell.parse(name), result) for name, result in (("torch:ddp", fast), ("torch:fsdp", slow))]
    (facet,) = Loaded((make_group("some", Comparison(tuple(rows)), {}, 0),)).facets()
    assert list(step_parts.sentences(facet)) == [
        "A step of torch:fsdp takes 25.0 times as long as one of torch:ddp. Of that, 71 % is spent waiting for 11 transfers "
        "and 19 % in Python."
    ]


def parts(**seconds: float) -> StepParts:
    known = dict.fromkeys(PARTS, 0.0) | {f"{name}_seconds": value for name, value in seconds.items()}
    return StepParts(**known, steps=20, own_step_seconds=sum(seconds.values()))


def test_only_what_there_is_has_a_section() -> None:
    assert sections(page_of(Row(Cell.parse("torch:ddp"), "failed", "boom"))) == ["verdict", "rows", "provenance"]
    assert sections(page_of(Row.of(Cell.parse("tf:tpu"), UNTRAINED))) == ["verdict", "rows", "provenance"]
    untimed = sections(page_of(Row.of(Cell.parse("torch:ddp"), dataclasses.replace(GOOD, examples_per_second=None))))
    assert "speed" not in untimed and "memory" in untimed


@pytest.mark.parametrize(
    "result",
    [
        dataclasses.replace(GOOD, losses=(1.0, math.nan, math.inf, 2.0)),
        dataclasses.replace(GOOD, losses=(1.0,)),
        judged(deviations=(0.0, None, 0.0), max_relative_loss=None, passed=False),
        judged(deviations=(0.0,), max_relative_loss=0.0),
        judged(deviations=()),
    ],
)
def test_curves_have_finite_places(result: RunResult) -> None:
    text = page_of(Row.of(Cell.parse("torch:ddp"), result))
    assert "losses" in sections(text)
    drawn = re.findall(r' d="([^"]*)"', text) + re.findall(r"(?:left|width|bottom):([^;%]*)%", text)
    assert drawn
    assert not [each for each in drawn if "nan" in each or "inf" in each]


def test_a_long_curve_keeps_its_extremes() -> None:
    points = [(step, 1.0 + (step == 7_003) - (step == 501)) for step in range(10_000)]
    kept = thin(points)
    assert len(kept) <= MOST_POINTS
    assert {(7_003, 2.0), (501, 0.0)} <= set(kept)
    assert kept == sorted(kept)
    assert kept[0][0] == 0 and thin(points[:50]) == points[:50]


def test_the_headline_says_what_matters_most() -> None:
    missed = Row.of(Cell.parse("torch:zero2"), judged(passed=False, first_bad_step=3, reason="why"))
    passed, failed = Row.of(Cell.parse("torch:ddp"), GOOD), Row(Cell.parse("tf:mirrored"), "failed", "boom")
    told = [
        re.findall(r'class="headline">([^<]*)', page_of(*rows))[0]
        for rows in ([passed], [passed, failed], [missed, passed])
    ]
    assert told == [
        "torch:ddp took the same step as its reference.",
        "tf:mirrored failed: boom.",
        "torch:zero2 did not take the same step: why.",
    ]


def test_a_page_of_every_strategy_is_small() -> None:
    """The bar is 200 kB for the rows of `samestep compare`; bytes on the wire, which these do not have, take 10 of them."""
    results = list(itertools.islice(every_strategy(), 21))
    assert len({(result.framework, result.strategy) for result in results}) == 21
    rows = tuple(Row.of(Cell.parse(f"{result.framework}:{result.strategy}"), result) for result in results)
    assert len(page(Loaded((make_group("all", Comparison(rows), {}, 0),))).encode()) < 190_000


def test_curves_that_lie_on_each_other_are_written_once() -> None:
    rows = tuple(Row.of(Cell.parse(cell), trained(cell, 10.0)) for cell in ("torch:ddp", "tf:mirrored"))
    alike = tuple(Row(row.configuration, row.status, results=(_with_losses(row, rows[0]),)) for row in rows)
    text = page(Loaded((make_group("some", Comparison(alike), {}, 0),)))
    (path,) = re.findall(r'<path id="l1-0" vector-effect="non-scaling-stroke" d="([^"]+)"/>', text)
    assert text.count(path) == 1
    assert re.findall(r'<use href="#l1-0" class="curve (\w+)" data-row="(\w+)">', text) == [
        ("torch", "r0"),
        ("tf", "r1"),
    ]


def _with_losses(row: Row, of: Row) -> RunResult:
    return dataclasses.replace(row.results[0], losses=of.results[0].losses)
