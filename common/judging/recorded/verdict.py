"""The verdict on two recorded runs."""

import dataclasses
from typing import Literal

from samestep.common.errors import ParityFailed, Unavailable
from samestep.common.mistakes.table import Cause

Kind = Literal["same", "amplified", "named", "unnamed", "unknown"]
"""amplified: the same, but rounding grew. named, unnamed: not the same, with or without a known cause. unknown: these records
cannot tell."""
Need = Literal["", "model", "weights", "float64", "steps", "command", "seed"]
"""What would decide or help: the same model or initial weights, a float64 pass, longer reruns, a command that can be run again,
or a seed."""
EXIT_CODES: dict[Kind, int] = {
    "same": 0,
    "amplified": 0,
    "named": ParityFailed.exit_code,
    "unnamed": ParityFailed.exit_code,
    "unknown": Unavailable.exit_code,
}


EXACT = ("initial weights", "data", "hyper-parameters", "replicas")
"""Phases that are compared without a yardstick."""

CLOSE = 20.0
"""The multiple of rounding (twice the threshold) up to which a difference of any size may be an effect that a few reruns do not
show."""
TIPPED = 0.1
"""The largest change of the gradients, relative to their norms, from a comparison that tips over for one example of a batch."""


@dataclasses.dataclass(frozen=True)
class FirstDifference:
    """Where two runs first differ.

    Attributes:
        step: The number of the step; -1 means before the first step.
        phase: "initial weights", "data", "hyper-parameters", "loss", "gradient", "clipping", "update" or "replicas".
        layer: The first layer in backward order that differs; "" if no tensor does.
        ranks: The ranks that differ, if they are known.
        words: How they differ, as a clause.
        ratio: The ratio of B's gradients to A's, if it explains every difference.
    """

    step: int
    phase: str
    layer: str = ""
    ranks: tuple[int, ...] = ()
    words: str = ""
    ratio: float | None = None


@dataclasses.dataclass(frozen=True)
class TensorRow:
    """A tensor at the first step that differs.

    Attributes:
        name: The name of the tensor.
        ratio: The ratio of B to A, by least squares.
        off: The norm of the difference, relative to A's norm.
        times: That norm, as a multiple of what rounding makes.
        differs: Whether that is more than rounding.
    """

    name: str
    ratio: float
    off: float
    times: float
    differs: bool


@dataclasses.dataclass(frozen=True)
class RecordedVerdict:
    """Whether two recorded runs took the same steps.

    Attributes:
        kind: The verdict.
        num_steps: How many steps were compared.
        first: The first difference, if there is one.
        causes: The known mistakes that explain it.
        rows: A row for each tensor at that step.
        worst: The largest difference, as a multiple of what rounding makes.
        growth: By how much the difference of the weights grew over the steps.
        resolution: The relative error of a gradient that would have been seen; 0 if nothing differs where rounding would hide it.
        need: What would decide or help.
        notes: Further notes.
        but_for: What differs in runs that are the same without showing in any gradient.
    """

    kind: Kind
    num_steps: int
    first: FirstDifference | None = None
    causes: tuple[Cause, ...] = ()
    rows: tuple[TensorRow, ...] = ()
    worst: float = 0.0
    growth: float = 1.0
    resolution: float | None = None
    need: Need = ""
    notes: tuple[str, ...] = ()
    but_for: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of `samestep diff`."""
        return EXIT_CODES[self.kind]

    @property
    def may_be_tipped(self) -> bool:
        """Whether more perturbations should be tried: in rare cases, rounding decides a comparison and moves a step by much."""
        off = sorted(row.off for row in self.rows if row.differs)
        if self.first is None or self.causes or self.is_exact:
            return False
        if self.first.ratio is not None and len(off) != 1:
            return False  # what tips over moves one small tensor by a factor, not all of them
        is_close = self.kind == "unnamed" and self.first.ratio is None and self.worst < CLOSE
        return not off or off[len(off) // 2] < TIPPED or is_close

    @property
    def is_exact(self) -> bool:
        """Whether rounding has no part in the first difference."""
        return self.first is not None and self.first.phase in EXACT

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        but_for = f", but for {' and '.join(self.but_for)}" if self.but_for else ""
        steps = f"{but_for}: {self.num_steps} step{'s' * (self.num_steps != 1)}"
        if self.kind == "same":
            return f"same{steps}"
        if self.kind == "amplified":
            return f"same, rounding amplified {self.growth:,.0f} x{steps}"
        assert self.first is not None or self.kind == "unknown"
        where = f": {place(self.first)}" if self.first else ""
        if self.kind == "unknown":
            return f"cannot tell{where}"
        cause = "; or ".join(cause.sentence for cause in self.causes) or (self.first.words if self.first else "")
        return f"not the same{where}: {cause}"


def place(first: FirstDifference) -> str:
    """Returns where a difference is, in words."""
    step = "before the first step" if first.step < 0 else f"step {first.step}"
    layer = f", layer {first.layer}" if first.layer else ""
    ranks = f", rank {' and '.join(map(str, first.ranks))}" if first.ranks else ""
    return f"{step}, {first.phase}{layer}{ranks}"


def layer_of(name: str) -> str:
    """Returns the module that holds a tensor. Keras separates names by slashes."""
    return name.rpartition("/" if "/" in name else ".")[0] or name
