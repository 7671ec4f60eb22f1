"""What the oracle knows of a mistake and what records show of it is one row, under one name."""

import re

import pytest

from samestep.common.mistakes.table import MISTAKES, of_step
from samestep.common.reference.known import KNOWN
from samestep.common.workload.optimizers.table import OPTIMIZERS, mistakes_of

OWN = {wrong.__name__ for optimizer in OPTIMIZERS for wrong in mistakes_of(optimizer)}
"""Mutants of an optimizer, which say what they are themselves."""
ROWS = {mistake.name: mistake for mistake in MISTAKES}


@pytest.mark.parametrize("mutant", [each for each in KNOWN if each.name in ROWS], ids=lambda mutant: mutant.name)
def test_a_mutant_that_records_show_says_what_its_row_says(mutant: object) -> None:
    row = ROWS[mutant.name]
    assert mutant.sentence == row.of_step if mutant.name not in OWN else not row.of_step


def test_no_row_speaks_of_a_mutant_that_is_not_there() -> None:
    said = {name for name, row in ROWS.items() if row.of_step}
    assert said == {mutant.name for mutant in KNOWN} & ROWS.keys() - OWN
    with pytest.raises(AssertionError):
        of_step("shares_overlap")


def test_no_two_rows_have_one_name_or_one_sentence() -> None:
    assert len(ROWS) == len(MISTAKES) == len({mistake.sentence for mistake in MISTAKES})
    assert len({mutant.name for mutant in KNOWN}) == len(KNOWN)


def test_threads_are_written_so_that_they_can_be_found() -> None:
    for mistake in MISTAKES:
        owner, _, rest = mistake.thread.partition("/")
        assert not mistake.thread or (owner and rest.partition("#")[2].isdigit()), mistake.thread


@pytest.mark.parametrize("mistake", [each for each in MISTAKES if each.has_sides], ids=lambda mistake: mistake.name)
def test_a_mistake_of_the_other_run_names_that_run_wherever_it_stood(mistake: object) -> None:
    assert not re.search(r"\b[AB]\b", mistake.sentence)
