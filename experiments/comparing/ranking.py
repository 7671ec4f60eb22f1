"""What the textbooks say of the strategies of a family among each other, held against what was just measured."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.families import Textbook
from samestep.common.judging.comparison import FASTER, LEAST_ROUNDS, SLOWER
from samestep.common.runtime.records import RunResult
from samestep.experiments.cli.arguments import CELL_FIELDS
from samestep.experiments.comparing.speeds import Confounds, Rounds, compare_rounds, no_confounds, speed_of
from samestep.experiments.printing.speed_columns import rate
from samestep.experiments.printing.text import fill, screen_width, size

EQUAL = 0.05
"""Byte counts that differ by less count as equal."""
UNCLEAR = "~"
"""Stands between two speeds that were not separated."""


_SIGNS = {FASTER: ">", SLOWER: "<"}
_TURNED = {">": "<", "<": ">", "=": "=", UNCLEAR: UNCLEAR}
Signs = Callable[[Rounds, Rounds], str]
"""How two rows compare: >, <, = or ~."""


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What strategies are ranked by.

    Attributes:
        title: Its name.
        place: The field of `Textbook` that ranks it.
        measure: What a row measured of it.
        write: That as text.
        signs: Makes what compares two of the rows of a family, given what forbids to rank them by speed.
    """

    title: str
    place: str
    measure: Callable[[Rounds], float]
    write: Callable[[Rounds], str]
    signs: Callable[[Sequence[Rounds], Confounds], Signs]


def _sign(a: float, b: float, equal: float = 0.0) -> str:
    if abs(a - b) <= equal * max(abs(a), abs(b)):
        return "="
    return ">" if a > b else "<"


def _speed(rounds: Rounds) -> float:
    predicted = speed_of(rounds).prediction
    return predicted.median if predicted else 0.0


def _signs_of_speeds(members: Sequence[Rounds], confounds: Confounds) -> Signs:
    """What compares the speeds of a family's rows: over their rounds, all pairs judged together, or by their windows."""
    pairs = {(id(a), id(b)): (a, b) for a, b in itertools.combinations(members, 2) if not confounds(a, b)}
    if min(map(len, members)) < 2:
        signs = {key: _sign_by_windows(*pair) for key, pair in pairs.items()}
    else:
        signs = {key: _SIGNS.get(found.verdict, UNCLEAR) for key, found in compare_rounds(pairs).items()}
    signs |= {(b, a): _TURNED[sign] for (a, b), sign in signs.items()}
    return lambda a, b: signs.get((id(a), id(b)), UNCLEAR)


def _sign_by_windows(a: Rounds, b: Rounds) -> str:
    """Speeds are separated if every window of one run was faster than any window of the other."""
    (slowest, fastest), (other_slowest, other_fastest) = _spread(a[0]), _spread(b[0])
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

    def sign(a: Rounds, b: Rounds) -> str:
        return _sign(measure(a[0]), measure(b[0]), EQUAL)

    return Quantity(title, place, lambda r: measure(r[0]), lambda r: size(measure(r[0])), lambda *_: sign)


QUANTITIES: Mapping[str, Quantity] = {
    "speed": Quantity("speed (examples/s)", "speed", _speed, rate, _signs_of_speeds),
    "memory": _counted(
        "memory (state of a device, between steps)", "memory", lambda r: max(x.state_bytes for x in r.processes)
    ),
    "peak": _counted(
        "memory (state of a device, at a step's peak)",
        "memory",
        lambda r: max(x.state_bytes - x.params_bytes + x.params_peak_bytes for x in r.processes),
    ),
    "sent": _counted(
        "communication (sent per step)", "sent", lambda r: sum(x.sent_bytes_per_step for x in r.processes)
    ),
}
"""By the name under which a `Family` says why a measurement may differ."""


def ranking(rows: Sequence[Rounds], confounds: Confounds = no_confounds) -> str:
    """One sentence for each quantity of each family that has at least two strategies among the rows; "" if none has.

    Rows that vary in something else, as with `--vary bandwidth=100mbit,1gbit`, are ranked apart for each of its values.

    Args:
        rows: Their results, one a round.
        confounds: Asked for each two rows of a family; those for which it names something are not ranked by speed.
    """
    families: dict[tuple[str, str], list[Rounds]] = {}
    varied = _varied(rows)
    for rounds in rows:
        if book := _textbook(rounds):
            families.setdefault((book.family.name, _value(rounds, varied)), []).append(rounds)
    lines = []
    for (name, value), members in families.items():
        if len({_name(member) for member in members}) > 1:
            lines.append(f"The textbooks' ranking of {name}{value}, and what was measured here:")
            lines += [f"* {_compare(each, members, confounds)}" for each in QUANTITIES]
    return "\n".join(fill(line, screen_width(), "  ") for line in lines)


def _settings(rounds: Rounds) -> dict[str, object]:
    """What a cell may set beside its strategy and its options."""
    config = rounds[0].config
    return {name: getattr(config, name) for name in CELL_FIELDS} | dataclasses.asdict(config.techniques)


def _varied(rows: Sequence[Rounds]) -> list[str]:
    """The settings in which every strategy has been varied alike, so that each value is a ranking of its own."""
    values: dict[str, list[dict[str, object]]] = {}
    for rounds in rows:
        if _textbook(rounds):
            values.setdefault(_name(rounds), []).append(_settings(rounds))
    named = next(iter(values.values()), [{}])[0]
    each = {name: {frozenset(own[name] for own in owns) for owns in values.values()} for name in named}
    return [name for name, found in each.items() if len(found) == 1 and len(next(iter(found))) > 1]


def _value(rounds: Rounds, varied: Sequence[str]) -> str:
    settings = _settings(rounds)
    return f" with {', '.join(f'{name} {settings[name]}' for name in varied)}" if varied else ""


def _name(rounds: Rounds) -> str:
    return rounds[0].strategy


def _textbook(rounds: Rounds) -> Textbook | None:
    return strategy_info(rounds[0].framework, rounds[0].strategy).textbook


def _compare(name: str, members: Sequence[Rounds], confounds: Confounds) -> str:
    quantity = QUANTITIES[name]
    places = {_name(member): getattr(_textbook(member), quantity.place) for member in members}

    def said(a: Rounds, b: Rounds) -> str:
        return _sign(places[_name(b)], places[_name(a)])  # place 1 has the most

    by_book = sorted(members, key=lambda member: places[_name(member)])
    here = sorted(members, key=quantity.measure, reverse=True)
    sign = quantity.signs(members, confounds)
    textbook = _chain(by_book, lambda member: _name(member), said)
    measured = _chain(here, lambda member: f"{_name(member)} {quantity.write(member)}", sign)
    pairs = [(a, sign(a, b), said(a, b), b) for a, b in itertools.combinations(by_book, 2)]
    against = [f"{_name(a)} {found} {_name(b)}" for a, found, book, b in pairs if found not in (book, UNCLEAR)]
    unclear = [
        (f"{_name(a)} and {_name(b)}", ", ".join(confounds(a, b))) for a, found, _, b in pairs if found == UNCLEAR
    ]
    outcome = [f"differs: {', '.join(against)} ({_why(name, by_book[0])})"] if against else []
    close = [both for both, why in unclear if not why]
    outcome += [f"{_unseparated(members)}: {', '.join(close)}"] if close else []
    for reason in dict.fromkeys(why for _, why in unclear if why):
        outcome.append(f"not ranked ({reason}): {', '.join(both for both, why in unclear if why == reason)}")
    return f"{quantity.title}: {textbook}; here {measured}: {'; '.join(outcome) or 'agrees'}."


def _unseparated(members: Sequence[Rounds]) -> str:
    """Why the sign of some pair is unclear."""
    rounds = min(map(len, members))
    if rounds == 1:
        return "not separated by their windows"
    return "not separated" if rounds >= LEAST_ROUNDS else f"not judged with fewer than {LEAST_ROUNDS} rounds"


def _why(name: str, member: Rounds) -> str:
    """Why a measurement may differ from the textbooks, and the page that explains it."""
    book = _textbook(member)
    return f"{book.family.differs[name]}; see {book.family.page}" if book else ""


def _chain(members: Sequence[Rounds], write: Callable[[Rounds], str], sign: Signs) -> str:
    signs = [f" {sign(a, b)} {write(b)}" for a, b in itertools.pairwise(members)]
    return write(members[0]) + "".join(signs)
