"""A quantity is defined once, and everything that shows, writes or keeps results has it."""

import dataclasses

import pytest

from documenting.readme import quantities_table
from samestep.common.ledger import Footprint
from samestep.experiments.comparing.quantities import QUANTITIES, SPEED, VERDICT
from samestep.experiments.comparing.quantity import Quantity
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.exporting.replay import outcome
from samestep.experiments.page.rows import COLUMNS
from samestep.experiments.printing.columns import columns, misses, shared_columns, spell_range
from samestep.experiments.printing.result_columns import figures
from samestep.experiments.printing.text import UNITS
from tests.results import made

SAVED = [dataclasses.replace(each, activations_bytes=2**20) for each in made("torch:ddp").processes]
RUN = made("torch:ddp", step_times={200: 2000}, processes=SAVED)
ROW = MeasuredRow.of(RUN)
EACH = pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda quantity: quantity.name)


def test_names_are_unique() -> None:
    for names in ([q.name for q in QUANTITIES], [q.key for q in QUANTITIES]):
        assert len(set(names)) == len(names)
    for names in (
        [q.title or q.name for q in QUANTITIES if q.on_page],
        [q.tracked_as for q in QUANTITIES if q.tracked_as],
    ):
        assert len(set(names)) == len(names)


@EACH
def test_the_tables_of_a_terminal_have_it(quantity: Quantity) -> None:
    shared = shared_columns([ROW])
    headers = [column.header for column in columns(shared, [ROW], "imports included")]
    found = [each for each in headers if each.removesuffix(" s").rstrip() == quantity.name]
    found += [each for each in headers if any(each == f"{quantity.name} {unit}" for unit in UNITS)]
    assert len(found) == (quantity.in_terminal and quantity is not VERDICT), headers


@EACH
def test_the_page_has_it(quantity: Quantity) -> None:
    assert [column.title for column in COLUMNS].count(quantity.title or quantity.name) == quantity.on_page


@EACH
def test_formats_for_programs_have_it(quantity: Quantity) -> None:
    found = figures(RUN)
    assert quantity.key in found and quantity.key in figures(None)
    assert (f"predicted_{quantity.key}" in found) == (quantity.in_ledger is not None)
    if quantity.measured(ROW) is not None and quantity.name != "workload":
        value = quantity.measured(ROW)
        assert found[quantity.key] == (pytest.approx(value) if isinstance(value, float) else value)


@EACH
def test_trackers_have_it(quantity: Quantity) -> None:
    if quantity.tracked_as:
        assert outcome(RUN)[quantity.tracked_as] == figures(RUN)[quantity.key]


@EACH
def test_the_docs_list_it(quantity: Quantity) -> None:
    (line,) = [line for line in quantities_table().splitlines() if line.startswith(f"| {quantity.name} ")]
    assert f"`{quantity.key}`" in line and quantity.better in line


@EACH
def test_what_is_predicted_is_held_against_what_is_measured(quantity: Quantity) -> None:
    off = {"processes": SAVED, "predicted": type(RUN.predicted)((_footprint(1),), (), 1.0)}
    assert (quantity.name in misses(made("torch:ddp", **off))) == (
        quantity.in_ledger is not None and quantity.measured(ROW) is not None
    )


def _footprint(held: int) -> Footprint:
    return Footprint(
        device="cpu",
        params_bytes=held,
        params_peak_bytes=held,
        gradients_bytes=held,
        optimizer_bytes=held,
        activations_bytes=held,
    )


def test_a_number_is_written_with_what_it_may_be_off() -> None:
    assert SPEED.text(ROW) and spell_range(ROW).startswith("[")
