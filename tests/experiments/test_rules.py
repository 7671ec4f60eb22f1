"""The rules: how they are judged, on cases made by hand; and docs/rules.md as the command writes it."""

from collections.abc import Iterator

import pytest

from samestep.experiments.documenting import readme
from samestep.experiments.documenting.rule_cases import Case, start_with_ddp, tensor_in_a_node
from samestep.experiments.documenting.rules import NEARLY_ALL, TOLERATED, Rule, judge

GOOD, BAD = TOLERATED, 2 * TOLERATED


def rule(cases: list[Case], has_condition: bool = True) -> Rule:
    def made() -> Iterator[Case]:
        yield from cases

    return Rule("Say so.", "nobody", "model", made, (lambda least: f"from {least:g} on") if has_condition else None)


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ([Case(GOOD, 0.5)] * 9 + [Case(BAD, 0.0)], "confirmed"),
        ([Case(GOOD, 0.5)] * 8 + [Case(BAD, 0.0)] * 2, "refuted"),
        ([Case(BAD, 0.0, 1), Case(BAD, 0.0, 2), Case(GOOD, 0.5, 4), Case(GOOD, 0.5, 8)], "confirmed from 4 on"),
        ([Case(GOOD, 0.5, 1), Case(BAD, 0.0, 2)], "refuted"),
    ],
)
def test_a_verdict(cases: list[Case], verdict: str) -> None:
    assert NEARLY_ALL == 0.9
    assert judge(rule(cases))[0] == verdict


def test_without_a_condition_none_is_looked_for() -> None:
    cases = [Case(BAD, 0.0, 1), Case(GOOD, 0.5, 4)]
    assert judge(rule(cases))[0] == "confirmed from 4 on"
    assert judge(rule(cases, has_condition=False))[0] == "refuted"


def test_a_case_has_layouts_on_both_sides() -> None:
    """A problem of which only whole models were measured says nothing for DDP."""
    for case in (*start_with_ddp(), *tensor_in_a_node()):
        assert min(case.following, case.breaking) == 0.0
        assert case.following > 0 or case.breaking > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_is_what_the_command_writes() -> None:
    """If this fails, `python -m experiments.documenting.readme` writes the page anew; read what it says in words once more."""
    for page, name, content in readme.judged():
        assert readme.replaced(page.read_text(), name, content) == page.read_text()
