"""The speeds of a comparison's rows over their rounds and relative to the reference row, and the sentences about them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from samestep.common.cell import Cell
from samestep.common.errors import count
from samestep.common.flags import Scalar
from samestep.common.judging.percentiles import percentile
from samestep.common.judging.speed_comparison import (
    NOT_SEPARATED,
    Difference,
    Key,
    PredictedSpeed,
    compare_speeds,
    predict_speed,
)
from samestep.common.runtime.records import RunResult
from samestep.experiments.printing.text import fill, marked

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
REFERENCE = "reference"
Rounds = Sequence[RunResult]
"""The results of one row, one for each round."""
Confounds = Callable[[Rounds, Rounds], Sequence[str]]
"""Returns the confounds because of which the speeds of two rows cannot be ranked."""


@dataclasses.dataclass(frozen=True)
class Speed:
    """How fast a row is.

    Attributes:
        prediction: The prediction of its examples per second; None if nothing was timed.
        step_seconds: The percentiles over the steps of all rounds: "p50", "p95" and "p99"; None if there are too few steps.
        is_reference: Whether the other rows are compared with this one.
        against: How it differs from the reference; None for the reference itself, without one, and for a confounded row.
        confounds: The confounds that prevent a verdict.
    """

    prediction: PredictedSpeed | None
    step_seconds: Mapping[str, float | None]
    is_reference: bool = False
    against: Difference | None = None
    confounds: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The speed relative to the reference in a word or two: `1.12x faster`, `not separated`; with few rounds `1.12x`."""
        if self.is_reference:
            return REFERENCE
        if self.confounds:
            return spell_confounds(self.confounds)
        if self.against is None:
            return ""
        if self.against.verdict == NOT_SEPARATED:
            return NOT_SEPARATED
        return f"{spell_ratio(self.against.ratio)} {self.against.verdict}".strip()


def spell_confounds(names: Sequence[str]) -> str:
    """Returns what stands in place of a verdict: the first of the confounds, and how many more there are."""
    first, *more = names
    return f"({first} +{len(more)})" if more else f"({first})"


def spell_ratio(ratio: float) -> str:
    """Returns a ratio of two speeds as text, as in 1.12x."""
    if ratio < 0.1:
        return f"{ratio:.2g}x"
    return f"{ratio:.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}x"


def examples_per_second(rounds: Rounds) -> list[float | None]:
    """Returns the median over the windows of each run; None for a run that timed none."""
    return [result.examples_per_second.median if result.examples_per_second else None for result in rounds]


def speed_of(rounds: Rounds) -> Speed:
    """Returns the speed of a row that is compared with nothing."""
    counts = [result.step_times for result in rounds]
    steps = {name: percentile(counts, share) for name, share in PERCENTILES.items()}
    return Speed(predict_speed(examples_per_second(rounds)), steps)


@dataclasses.dataclass(frozen=True)
class MeasuredRow:
    """A row that has a result.

    Attributes:
        result: The result of its first round.
        speed: Its speed over all its rounds.
        cell: The cell of the row; by default that of its run.
    """

    result: RunResult
    speed: Speed
    cell: str = ""

    @classmethod
    def of(cls, result: RunResult) -> "MeasuredRow":
        """Returns the row of a single run."""
        return cls(result, speed_of([result]))

    @property
    def name(self) -> str:
        """The cell, `framework:strategy+option=value`, with a mesh other than the default one, and a mark if it is emulated."""
        return marked(self.cell or Cell.of(self.result.config), self.result.emulation)


def devices(result: RunResult) -> str:
    """Returns the number of devices of a run, and the number of cores if devices share them, which makes speeds meaningless."""
    number = str(result.config.devices or 1)
    return f"{number} on {count(result.cores, 'core')}" if share_cores(result) else number


def share_cores(result: RunResult) -> bool:
    """Returns whether a run's devices are on a CPU with fewer cores than they have threads."""
    on_cpu = all("cpu" in row.device.lower() for row in result.processes)
    return on_cpu and not result.compiled and result.cores < (result.config.devices or 1) * result.config.threads


def judge_rows(
    rows: Mapping[str, Rounds], reference: str | None, confounds: Confounds = lambda row, other: ()
) -> dict[str, Speed]:
    """Returns the speed of every row, judged against that of the reference row if there are rounds.

    The oracle is not judged, since it runs once and shows the right step, not a fast one. Rows that missed parity are not
    judged either.

    Args:
        rows: The rows by name, each with at least one round.
        reference: The name of the reference row; None compares nothing.
        confounds: Returns the confounds of a row; a row with any gets no verdict.
    """
    found = {name: speed_of(rounds) for name, rounds in rows.items()}
    base = rows.get(reference or "", ())
    if len(base) < 2:
        return found
    others = {name: rounds for name, rounds in rows.items() if name != reference and _may_be_judged(rounds)}
    named = {name: tuple(confounds(rounds, base)) for name, rounds in others.items()}
    judged = compare_rounds({name: (rounds, base) for name, rounds in others.items() if not named[name]})
    return {
        name: dataclasses.replace(
            speed, is_reference=name == reference, against=judged.get(name), confounds=named.get(name, ())
        )
        for name, speed in found.items()
    }


def _may_be_judged(rounds: Rounds) -> bool:
    return not rounds[0].is_oracle and all(result.parity.passed is not False for result in rounds)


def compare_rounds(pairs: Mapping[Key, tuple[Rounds, Rounds]]) -> dict[Key, Difference]:
    """Judges all pairs of rows together, each over the rounds that both of its rows have.

    Args:
        pairs: Name -> a row, and the row that it is compared with.
    """
    return compare_speeds({name: (examples_per_second(a), examples_per_second(b)) for name, (a, b) in pairs.items()})


def speed_figures(speed: Speed | None) -> dict[str, Scalar]:
    """Returns the columns of a row's speed for programs: plain numbers and words, or None."""
    parts = {
        "speed": (PredictedSpeed, speed and speed.prediction),
        "against_reference": (Difference, speed and speed.against),
    }
    figures: dict[str, Scalar] = {
        f"step_{name}_seconds": speed.step_seconds[name] if speed else None for name in PERCENTILES
    }
    for prefix, (kind, part) in parts.items():
        names = [field.name for field in dataclasses.fields(kind)]
        figures |= {f"{prefix}_{name}": None if part is None else getattr(part, name) for name in names}
    return {**figures, "confounds": " ".join(speed.confounds) if speed else None}


def unseparated(rows: Mapping[str, Speed], reference: str | None) -> str:
    """Returns what would separate each row that is not separated from the reference, one line a row; "" if there are none.

    Args:
        rows: The rows by name.
        reference: The name of the row they are compared with.
    """
    unclear = {name: row.against for name, row in rows.items() if row.against and row.against.verdict == NOT_SEPARATED}
    lines = [f"* {name}: {_what_it_takes(difference)}" for name, difference in unclear.items()]
    title = f"Not separated from {reference}:"
    return "\n".join(fill(line, indent="  ") for line in [title, *lines]) if lines else ""


def _what_it_takes(difference: Difference) -> str:
    """Returns the observed difference, the smallest detectable one, and the rounds that would detect the observed one."""
    found, seen = difference.detectable or 1.0, spell_ratio(difference.ratio)
    interval = f"[{spell_ratio(difference.low or 0)}..{spell_ratio(difference.high or 0)}]"
    rounds = f"{difference.rounds_needed:,}" if difference.rounds_needed else "more than 1,000"
    return (
        f"{seen} {interval}; {difference.rounds} rounds can detect {spell_ratio(found)} or {spell_ratio(1 / found)} "
        f"with 90 % power, and {rounds} rounds could detect {seen}."
    )
