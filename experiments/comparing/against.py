"""Compares today's rows with those of an earlier comparison: the losses of every step, the bytes, and the speed."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from samestep.common.catalog import read_options, strategy_info
from samestep.common.judging.confounds import Confound, split_allowed
from samestep.common.judging.parity import COMPILED, spell_apart
from samestep.common.judging.repetition import CHANGED, Repetition, compare_losses
from samestep.common.judging.speed_comparison import Difference, compare_apart, predict_speed
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.baseline import Earlier, match
from samestep.experiments.comparing.changes import changed_bytes, differing_bits, why_other_bits
from samestep.experiments.comparing.confound_report import confounds
from samestep.experiments.comparing.speeds import Rounds, examples_per_second
from samestep.experiments.printing.formats import Case

DECIDES_NUMBERS = ("dtype", "optimizer", "batch", "data", "order", "parameters", "workload", "techniques")
"""The confounds that change the losses: two runs that differ in one of them are not the same request."""
LOOKED_FOR = ("versions",)
"""The confounds that a user wants to find in an earlier comparison: they may differ, and the table names the difference."""


@dataclasses.dataclass(frozen=True)
class RowDifference:
    """A row of today's comparison, compared with the earlier one.

    Attributes:
        cell: The cell of today's row.
        reason: Why losses and bytes cannot be compared; "" if they can.
        losses: How the losses compare, in the round where they are furthest apart; None if they cannot be compared.
        bytes: The changes of the footprints, the exchanges and the bytes on the wire, a clause for each.
        confounds: What keeps the speeds from being compared.
        allowed: Confounds that would keep them from being compared if the user had not allowed them.
        differs: The versions that differ.
        bits: Why the bits of its steps could not be judged; "" if they could be, None if that was not requested.
        differing: The bits of its steps that differ, if that was requested and judged.
        rates: Examples per second today and earlier, the median over the rounds; None if nothing was timed.
        speed: Today's speed as a multiple of the earlier one; None if confounds prevent it, or nothing was timed.
    """

    cell: str
    reason: str = ""
    losses: Repetition | None = None
    bytes: tuple[str, ...] = ()
    confounds: tuple[Confound, ...] = ()
    allowed: tuple[Confound, ...] = ()
    differs: str = ""
    bits: str | None = None
    differing: str = ""
    rates: tuple[float | None, float | None] = (None, None)
    speed: Difference | None = None

    @property
    def is_changed(self) -> bool:
        """Whether the step has changed."""
        return bool(self.bytes or self.differing) or (self.losses is not None and self.losses.verdict == CHANGED)

    @property
    def is_judged(self) -> bool:
        """Whether everything that was requested could be judged."""
        return self.losses is not None and not self.bits

    @property
    def where(self) -> str:
        """The cell of the row, with the first step that has changed if a loss shows it."""
        step = self.losses.step if self.losses and (self.differing or self.losses.verdict == CHANGED) else None
        return self.cell if step is None else f"{self.cell} (step {step})"

    @property
    def what_changed(self) -> str:
        """What has changed, in a sentence; "" if nothing."""
        said = []
        if self.losses and self.losses.verdict == CHANGED:
            now, then = spell_apart(self.losses.now or 0.0, self.losses.then or 0.0)
            far = "" if self.losses.deviation is None else f"relative deviation {self.losses.deviation:.1e}, "
            said.append(
                f"the loss of step {self.losses.step} is {now} and was {then} ({far}allowed {self.losses.allowed:.0e})"
            )
        elif self.differing:
            said.append(self.differing)
        return "; ".join([*said, *self.bytes])

    @property
    def why_not(self) -> str:
        """Returns why it could not be judged; "" if it could."""
        return self.reason or (f"bits cannot be expected to be equal: {self.bits}" if self.bits else "")

    def case(self) -> Case:
        """Returns the row as a test case of its own."""
        name = f"{self.cell} against the earlier comparison"
        if self.is_changed:
            return Case(name, "failure", self.what_changed)
        return Case(name) if self.is_judged else Case(name, "skipped", self.why_not)


@dataclasses.dataclass(frozen=True)
class Against:
    """A comparison, compared with an earlier one.

    Attributes:
        directory: The directory of the earlier one.
        rows: The rows that both have.
        only_now: The cells that the earlier one lacks.
        only_then: Its cells that are missing today.
    """

    directory: str
    rows: tuple[RowDifference, ...]
    only_now: tuple[str, ...]
    only_then: tuple[str, ...]

    @property
    def changed(self) -> str:
        """Returns a sentence with the rows whose step has changed; "" if none has."""
        rows = [row.where for row in self.rows if row.is_changed]
        return f"{', '.join(rows)} did not take the step that {self.directory} has." if rows else ""

    def lack(self, required: Sequence[str] = ()) -> str:
        """Returns why required rows, or all rows, could not be compared with the earlier comparison; "" if they could.

        Args:
            required: The cells that must be compared, in addition to all whose bits have to be equal.
        """
        held = {row.cell for row in self.rows if row.is_judged}
        missing = [cell for cell in required if cell not in held]
        missing += [row.cell for row in self.rows if row.bits and row.cell not in missing]
        if held and not missing:
            return ""
        reasons = dict.fromkeys(row.why_not for row in self.rows if row.why_not and row.cell in (missing or [row.cell]))
        what = f"{', '.join(missing)} could not" if held else "nothing could"
        return f"{what} be held against {self.directory}: {'; '.join(reasons) or 'no row is in both'}."

    def cases(self) -> list[Case]:
        """Returns each row as a test case."""
        return [row.case() for row in self.rows]


def hold(rows: Mapping[str, Rounds], earlier: Earlier, allowed: Collection[str], bit_equal: bool = False) -> Against:
    """Compares today's rows with earlier ones.

    Args:
        rows: Today's rows that have a result, by their cells.
        earlier: The earlier comparison.
        allowed: The confounds that the user allowed.
        bit_equal: Whether the steps have to be the same in every bit.
    """
    pairs = match(rows, earlier.rows)
    both = {cell: (rows[cell], earlier.rows[other]) for cell, other in pairs.items()}
    held = [_hold(cell, now, then, allowed) for cell, (now, then) in both.items()]
    held = [_judge_bits(row, *both[row.cell]) for row in held] if bit_equal else held
    timed = {each.cell: both[each.cell] for each in held if not (each.reason or each.confounds)}
    speeds = compare_apart({cell: (examples_per_second(a), examples_per_second(b)) for cell, (a, b) in timed.items()})
    held = [dataclasses.replace(each, speed=speeds.get(each.cell)) for each in held]
    only_then = [cell for cell in earlier.rows if cell not in pairs.values()]
    return Against(
        str(earlier.directory), tuple(held), tuple(cell for cell in rows if cell not in pairs), tuple(only_then)
    )


def _hold(cell: str, now: Rounds, then: Rounds, allowed: Collection[str]) -> RowDifference:
    count = max(len(now), len(then))
    whole = [[row[min(number, len(row) - 1)] for number in range(count)] for row in (now, then)]
    found = confounds(*whole, labels=("today", "then"), is_same_strategy=True)
    looked_for = [each for each in found if each.name in LOOKED_FOR]
    stops, allows = split_allowed([each for each in found if each.name not in LOOKED_FOR], allowed)
    speeds = (predict_speed(examples_per_second(row)) for row in (now, then))
    rate, was = (None if speed is None else speed.median for speed in speeds)
    differs = ", ".join(e.differs for e in looked_for)
    held = RowDifference(cell, confounds=tuple(stops), allowed=tuple(allows), differs=differs, rates=(rate, was))
    if reason := _why_not(now[0], then[0], found):
        return dataclasses.replace(held, reason=reason)
    losses = [compare_losses(one.dtype, one.first_step, one.losses, two.losses) for one in now for two in then]
    worst = max(losses, key=lambda each: (each.verdict == CHANGED, each.step is not None, each.deviation or 0.0))
    return dataclasses.replace(held, losses=worst, bytes=tuple(changed_bytes(now[0], then[0])))


def _judge_bits(held: RowDifference, now: Rounds, then: Rounds) -> RowDifference:
    if held.losses is None:
        return held
    bits = why_other_bits(now, then)
    return dataclasses.replace(held, bits=bits, differing="" if bits else differing_bits(now, then))


def _why_not(now: RunResult, then: RunResult, found: Sequence[Confound]) -> str:
    """Says why the steps of two rows cannot be compared; "" if they can."""
    differing = [f"{e.name} ({e.differs})" for e in found if e.name in DECIDES_NUMBERS]
    older = {**now.config.options, **then.config.options}  # an older run may lack an option
    own = {"mesh": (now.mesh, then.mesh)} | {name: (value, older[name]) for name, value in now.config.options.items()}
    differing += [f"{name} ({one} and {two})" for name, (one, two) in own.items() if one != two]
    if differing:
        return f"another request: {', '.join(differing)}"
    if now.compiled or then.compiled:
        return COMPILED
    info = strategy_info(now.framework, now.strategy)
    return info.varies(read_options(now.framework, info, now.config.options))
