"""What the textbooks say of the strategies of a family among each other, held against what was just measured."""

import itertools
from collections.abc import Callable, Mapping, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.runtime.records import RunResult
from samestep.common.strategy import Textbook
from samestep.experiments.text import size

EQUAL = 0.05
"""Figures that differ by less count as equal."""
Member = tuple[RunResult, Textbook]


def _speed(result: RunResult) -> float:
    return result.examples_per_second.median if result.examples_per_second else 0.0


def _peak(result: RunResult) -> float:
    return max(row.params_peak_bytes + row.gradients_bytes + row.optimizer_bytes for row in result.processes)


QUANTITIES: Mapping[str, tuple[str, Callable[[RunResult], float], Callable[[float], str]]] = {
    "speed (examples/s)": ("speed", _speed, "{:,.0f}".format),
    "memory (state of a device, between steps)": ("memory", lambda r: max(x.state_bytes for x in r.processes), size),
    "memory (state of a device, at a step's peak)": ("memory", _peak, size),
    "communication (sent per step)": ("sent", lambda r: sum(x.sent_bytes_per_step for x in r.processes), size),
}
"""What strategies are ranked by -> the field of `Textbook`, what a run measured of it, and how that is written."""


def ranking(results: Sequence[RunResult]) -> str:
    """One line for each quantity of each family that has at least two strategies among the results; "" if none has."""
    members = [(r, book) for r in results if (book := strategy_info(r.framework, r.strategy).textbook)]
    lines = []
    for family in dict.fromkeys(book.family for _, book in members):
        ranked = [(r, book) for r, book in members if book.family == family]
        if len({book for _, book in ranked}) > 1:
            lines.append(f"The textbooks' ranking of {family}, and what was measured here:")
            lines += [f"* {_compare(quantity, ranked)}" for quantity in QUANTITIES]
    return "\n".join(lines)


def _compare(quantity: str, members: Sequence[Member]) -> str:
    field, measure, spell = QUANTITIES[quantity]

    def said(member: Member) -> float:
        return -getattr(member[1], field)  # place 1 has the most

    def found(member: Member) -> float:
        return measure(member[0])

    by_book = sorted(members, key=said, reverse=True)
    textbook = _chain([(member[0].strategy, said(member)) for member in by_book], 0)
    by_measure = sorted(members, key=found, reverse=True)
    here = _chain([(f"{m[0].strategy} {spell(found(m))}", found(m)) for m in by_measure], EQUAL)
    against = [
        f"{a[0].strategy} {_sign(found(a), found(b), EQUAL)} {b[0].strategy}"
        for a, b in itertools.combinations(by_book, 2)
        if _sign(found(a), found(b), EQUAL) != _sign(said(a), said(b), 0)
    ]
    outcome = f"differs: {', '.join(against)}" if against else "agrees"
    return f"{quantity}: {textbook}; here {here}: {outcome}."


def _chain(named: Sequence[tuple[str, float]], equal: float) -> str:
    signs = [f" {_sign(a, b, equal)} {name}" for (_, a), (name, b) in itertools.pairwise(named)]
    return named[0][0] + "".join(signs)


def _sign(a: float, b: float, equal: float) -> str:
    if abs(a - b) <= equal * max(abs(a), abs(b)):
        return "="
    return ">" if a > b else "<"
