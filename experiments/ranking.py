"""What the textbooks say of the rows of a family among each other, held against what was just measured."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from common.runtime.records import RunResult
from common.strategy import Textbook, strategy_info
from experiments import tables

EQUAL = 0.05
"""Figures that differ by less count as equal."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """Something that strategies are ranked by.

    Attributes:
        name: In the sentence.
        place: The textbooks' place; 1 has the most of it.
        measured: What a run had of it.
        shown: A measured figure in words.
    """

    name: str
    place: Callable[[Textbook], int]
    measured: Callable[[RunResult], float]
    shown: Callable[[float], str]


def _speed(result: RunResult) -> float:
    return result.examples_per_second.median if result.examples_per_second else 0.0


def _state(result: RunResult) -> float:
    return max(row.params_bytes + row.gradients_bytes + row.optimizer_bytes for row in result.processes)


def _peak(result: RunResult) -> float:
    return max(row.params_peak_bytes + row.gradients_bytes + row.optimizer_bytes for row in result.processes)


def _sent(result: RunResult) -> float:
    return sum(row.sent_bytes_per_step for row in result.processes)


QUANTITIES = (
    Quantity("speed (examples/s)", lambda book: book.speed, _speed, lambda rate: f"{rate:,.0f}"),
    Quantity("memory (state of a device, between steps)", lambda book: book.memory, _state, tables.size),
    Quantity("memory (state of a device, at a step's peak)", lambda book: book.memory, _peak, tables.size),
    Quantity("communication (sent per step)", lambda book: book.sent, _sent, tables.size),
)


def ranking(results: Sequence[RunResult]) -> str:
    """One line for each quantity of each family that has at least two rows among the results; "" if none has."""
    books = {id(r): strategy_info(r.framework, r.strategy).textbook for r in results}
    families = dict.fromkeys(book.family for book in books.values() if book)
    lines = []
    for family in families:
        members = [(r, book) for r in results if (book := books[id(r)]) and book.family == family]
        if len({book for _, book in members}) > 1:
            lines.append(f"The textbooks' ranking of {family}, and what was measured here:")
            lines += [f"* {_line(quantity, members)}" for quantity in QUANTITIES]
    return "\n".join(lines)


def _line(quantity: Quantity, members: Sequence[tuple[RunResult, Textbook]]) -> str:
    said = sorted(members, key=lambda member: quantity.place(member[1]))
    found = sorted(members, key=lambda member: -quantity.measured(member[0]))
    textbook = _chain([(r.strategy, -quantity.place(book)) for r, book in said], equal=0)
    figures = [(f"{r.strategy} {quantity.shown(quantity.measured(r))}", quantity.measured(r)) for r, _ in found]
    against = [
        f"{a.strategy} {_sign(quantity.measured(a), quantity.measured(b), EQUAL)} {b.strategy}"
        for (a, book), (b, other) in itertools.combinations(said, 2)
        if _sign(quantity.measured(a), quantity.measured(b), EQUAL)
        != _sign(-quantity.place(book), -quantity.place(other), 0)
    ]
    outcome = f"differs: {', '.join(against)}" if against else "agrees"
    return f"{quantity.name}: {textbook}; here {_chain(figures, EQUAL)}: {outcome}."


def _chain(named: Sequence[tuple[str, float]], equal: float) -> str:
    text = named[0][0]
    for (_, before), (name, value) in itertools.pairwise(named):
        text += f" {_sign(before, value, equal)} {name}"
    return text


def _sign(a: float, b: float, equal: float) -> str:
    if abs(a - b) <= equal * max(abs(a), abs(b)):
        return "="
    return ">" if a > b else "<"
