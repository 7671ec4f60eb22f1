"""What the textbooks say of the strategies of a family among each other, held against what was just measured."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.runtime.records import RunResult
from samestep.common.strategy import Textbook
from samestep.experiments.columns import rate
from samestep.experiments.text import fill, screen_width, size

EQUAL = 0.05
"""Byte counts that differ by less count as equal."""
UNCLEAR = "~"
"""Stands between two speeds that were not separated."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What strategies are ranked by.

    Attributes:
        title: Its name.
        place: The field of `Textbook` that ranks it.
        measure: What a run measured of it.
        write: That as text.
        sign: How two runs compare: >, <, = or ~.
    """

    title: str
    place: str
    measure: Callable[[RunResult], float]
    write: Callable[[RunResult], str]
    sign: Callable[[RunResult, RunResult], str]


def _sign(a: float, b: float, equal: float = 0.0) -> str:
    if abs(a - b) <= equal * max(abs(a), abs(b)):
        return "="
    return ">" if a > b else "<"


def _speed(result: RunResult) -> float:
    return result.examples_per_second.median if result.examples_per_second else 0.0


def _sign_of_speeds(a: RunResult, b: RunResult) -> str:
    """Speeds are separated if every window of one run was faster than any window of the other."""
    (slowest, fastest), (other_slowest, other_fastest) = _spread(a), _spread(b)
    overlap = slowest <= other_fastest and other_slowest <= fastest
    return UNCLEAR if overlap else _sign(_speed(a), _speed(b))


def _spread(result: RunResult) -> tuple[float, float]:
    """The slowest and the fastest window; everything, if it is not known how far windows are apart."""
    rate = result.examples_per_second
    if rate is None or rate.windows == 1 or rate.slowest_window is None or rate.fastest_window is None:
        return -math.inf, math.inf
    return rate.slowest_window, rate.fastest_window


def _counted(title: str, place: str, measure: Callable[[RunResult], float]) -> Quantity:
    """A quantity that is counted in bytes, alike in every run."""
    return Quantity(
        title, place, measure, lambda r: size(measure(r)), lambda a, b: _sign(measure(a), measure(b), EQUAL)
    )


QUANTITIES: Mapping[str, Quantity] = {
    "speed": Quantity("speed (examples/s)", "speed", _speed, rate, _sign_of_speeds),
    "memory": _counted(
        "memory (state of a device, between steps)", "memory", lambda r: max(x.state_bytes for x in r.processes)
    ),
    "peak": _counted(
        "memory (state of a device, at a step's peak)",
        "memory",
        lambda r: max(x.params_peak_bytes + x.gradients_bytes + x.optimizer_bytes for x in r.processes),
    ),
    "sent": _counted(
        "communication (sent per step)", "sent", lambda r: sum(x.sent_bytes_per_step for x in r.processes)
    ),
}
"""By the name under which a `Family` says why a measurement may differ."""


def ranking(results: Sequence[RunResult]) -> str:
    """One sentence for each quantity of each family that has at least two strategies among the results; "" if none has."""
    families: dict[str, list[RunResult]] = {}
    for result in results:
        if book := _textbook(result):
            families.setdefault(book.family.name, []).append(result)
    lines = []
    for name, members in families.items():
        if len({member.strategy for member in members}) > 1:
            lines.append(f"The textbooks' ranking of {name}, and what was measured here:")
            lines += [f"* {_compare(each, members)}" for each in QUANTITIES]
    return "\n".join(fill(line, screen_width(), "  ") for line in lines)


def _textbook(result: RunResult) -> Textbook | None:
    return strategy_info(result.framework, result.strategy).textbook


def _compare(name: str, members: Sequence[RunResult]) -> str:
    quantity = QUANTITIES[name]
    places = {member.strategy: getattr(_textbook(member), quantity.place) for member in members}

    def said(a: RunResult, b: RunResult) -> str:
        return _sign(places[b.strategy], places[a.strategy])  # place 1 has the most

    by_book = sorted(members, key=lambda member: places[member.strategy])
    here = sorted(members, key=quantity.measure, reverse=True)
    textbook = _chain(by_book, lambda member: member.strategy, said)
    measured = _chain(here, lambda member: f"{member.strategy} {quantity.write(member)}", quantity.sign)
    pairs = [(a, quantity.sign(a, b), said(a, b), b) for a, b in itertools.combinations(by_book, 2)]
    against = [f"{a.strategy} {found} {b.strategy}" for a, found, book, b in pairs if found not in (book, UNCLEAR)]
    unclear = [f"{a.strategy} and {b.strategy}" for a, found, _, b in pairs if found == UNCLEAR]
    outcome = [f"differs: {', '.join(against)} ({_why(name, by_book[0])})"] if against else []
    outcome += [f"not separated by their windows: {', '.join(unclear)}"] if unclear else []
    return f"{quantity.title}: {textbook}; here {measured}: {'; '.join(outcome) or 'agrees'}."


def _why(name: str, member: RunResult) -> str:
    """Why a measurement may differ from the textbooks, and the page that explains it."""
    book = _textbook(member)
    return f"{book.family.differs[name]}; see {book.family.page}" if book else ""


def _chain(
    members: Sequence[RunResult], write: Callable[[RunResult], str], sign: Callable[[RunResult, RunResult], str]
) -> str:
    signs = [f" {sign(a, b)} {write(b)}" for a, b in itertools.pairwise(members)]
    return write(members[0]) + "".join(signs)
