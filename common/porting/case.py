"""Two implementations that ran from the same weights, and what comparing them found."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned, align
from samestep.common.porting.array_layouts import FLOAT32, Both, apart
from samestep.common.porting.matching.matching import Matching
from samestep.common.porting.matching.pairing import Pair
from samestep.common.porting.model_trace import NUDGE, ModelTrace
from samestep.common.porting.words import relative, spell_deviation
from samestep.common.workload.declaration import BUILDERS

Hyper = Mapping[str, object]
"""The settings of an optimizer, by the names of its framework."""
LAYER_BOUND = 1e-12
"""How far a layer may be from its counterpart in float64, relative to its largest element."""
CURVE_BOUND = 1e-10
"""How far apart the losses of a step of the curve may be, relative."""
MOST_OFF = 1e-3
"""The largest deviation of a loss that is allowed, however much the steps amplify."""
GROWTH = 30.0
"""The factor by which a deviation may grow from the layer with the constant to the outputs, and in the backward pass."""
SAME, CONSTANTS, DIFFERENT = "same", "constants", "different"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortVerdict:
    """What comparing two implementations found.

    Attributes:
        kind: "same", "constants" for the same up to constants in float32, or "different".
        sentence: The verdict in a sentence that can be pasted into an issue.
        phase: Where the first difference is: forward, dropout, loss, evaluation, backward, buffers, update,
            curve; "" if none.
        source: The source's layer or parameter that differs first.
        target: The target's layer or parameter that differs first.
        deviation: The relative deviation.
        cause: The cause in words; "" if no known cause explains it.
        notes: Harmless differences.
    """

    kind: str
    sentence: str
    phase: str = ""
    source: str = ""
    target: str = ""
    deviation: float = 0.0
    cause: str = ""
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class PortCase:
    """Two implementations, run from the same weights.

    Attributes:
        matching: The matching of their parameters.
        source: The source's trace.
        target: The target's trace.
        weights: The parameters and buffers of the source, and of the target, by neutral name.
        frameworks: The frameworks of the source and of the target.
        accepted: The names of accepted differences. Where they affect numbers, the source was traced with the target's
            behavior.
    """

    matching: Matching
    source: ModelTrace
    target: ModelTrace
    weights: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]
    frameworks: Sequence[str] = BUILDERS
    accepted: Sequence[str] = ()

    @functools.cached_property
    def layers(self) -> Sequence[Aligned]:
        """The calls of both implementations, aligned."""
        return align(self.matching, self.source, self.target, self.weights)

    def updates(self, pair: Pair) -> tuple[Hyper, Hyper]:
        """Returns the settings of both optimizers for matched parameters; empty where they are not known."""
        ours, theirs = pair.source[0].neutral, pair.target[0].neutral
        return self.source.optimizer.get(ours, {}), self.target.optimizer.get(theirs, {})

    def allowed_deviations(self) -> list[float]:
        """Returns how far the loss of each step of the curve may be off, relative.

        The bound is at least CURVE_BOUND. Otherwise it is the deviation of the layers, or of hyper-parameters that
        Keras keeps in float32, amplified by the steps. How much they amplify is measured in the source's own curve from
        slightly perturbed weights.
        """
        start, growth, found = max(self._rounded(), *(apart(*layer.output) for layer in self.layers)), 1.0, []
        for number, one in enumerate(self.source.losses):
            if self.source.nudged and math.isfinite(moved := relative(self.source.nudged[number], one)):
                growth = max(growth, moved / NUDGE)
            found.append(min(MOST_OFF, max(CURVE_BOUND, GROWTH * growth * max(start, 1e-15))))
        return found

    def _rounded(self) -> float:
        """Returns the largest relative error of the rates and momenta that Keras rounds to float32 in a float64 run."""
        rates = (relative(*both) for both in zip(self.source.rates, self.target.rates, strict=False))
        settings = [*self.source.optimizer.values(), *self.target.optimizer.values()]
        momenta = {
            value for each in settings if isinstance(value := each.get("momentum"), float) and math.isfinite(value)
        }
        kept = (relative(value, float(np.float32(value))) for value in momenta)
        return max((each for each in itertools.chain(rates, kept) if each <= FLOAT32), default=0.0)


def off(layer: Aligned) -> float:
    """Returns the larger of the deviations of a layer's output and of its input."""
    return max(apart(*layer.output), 0.0 if layer.inputs is None else apart(*layer.inputs))


def first_difference(
    phase: str, where: str, seen: str, cause: str = "", names: tuple[str, str] = ("", ""), deviation: float = 0.0
) -> PortVerdict:
    """Makes the verdict on the first difference.

    Args:
        phase: As in `PortVerdict`.
        where: The layers between which it is; "" if `seen` says it.
        seen: What differs.
        cause: The cause, if it is known.
        names: The names of both layers.
        deviation: The relative deviation.
    """
    said = ": ".join(filter(None, ("first difference", where, seen, cause)))
    source, target = names
    return PortVerdict(
        kind=DIFFERENT, sentence=said, phase=phase, source=source, target=target, deviation=deviation, cause=cause
    )


def different(phase: str, layer: Aligned, deviation: float, seen: str, cause: str, where: str = "") -> PortVerdict:
    """Makes the verdict that a layer is the first difference.

    Args:
        phase: As in `PortVerdict`.
        layer: The layer.
        deviation: The relative deviation.
        seen: What differs.
        cause: The cause, if it is known.
        where: The layers between which it is, if it is not in `layer` itself.
    """
    return first_difference(phase, where or layer.names, seen, cause, (layer.source.name, layer.target.name), deviation)


def differ(what: str, both: Both) -> str:
    """Says how far apart two arrays are, and where they differ if that is not everywhere.

    Args:
        what: The subject of the sentence.
        both: The arrays of torch and TensorFlow.
    """
    one, other = both
    if one.shape != other.shape:
        return f"{what} are shaped {list(one.shape)} and {list(other.shape)}"
    with np.errstate(all="ignore"):
        ratio = float(np.linalg.norm(one - other) / np.linalg.norm(one))
    return f"{what} {'differs' if what == 'the input' else 'differ'} by {spell_deviation(ratio)}{_place(one, other)}"


def _place(one: np.ndarray, other: np.ndarray) -> str:
    """Says where two arrays differ, if only along the border or at one position; otherwise returns ""."""
    with np.errstate(all="ignore"):
        off = ~(np.abs(one - other) <= LAYER_BOUND * np.abs(one).max())
    if one.ndim == 4 and min(one.shape[1:3]) > 2 and off.any() and not off[:, 1:-1, 1:-1].any():
        return " along the border"
    if one.ndim == 3 and off.any() and one.shape[1] > 2:
        at = np.flatnonzero(off.any(axis=(0, 2)))
        if len(at) == 1:
            return f" at position {at[0]}"
    return ""
