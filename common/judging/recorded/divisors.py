"""Explains running variances of two frameworks, one of which updates them with sums of squares over n, the other over n - 1.

Training does not show this. Let v be a running variance in A, w the same in B, and k the share of it that a step keeps. A step
turns the difference d = w - v into k d + s (v - k v before), where s is 1 / (n - 1) if B divides by n - 1, and -1 / n if A does.
"""

import dataclasses

import numpy as np

from samestep.common.judging.recorded.pairing import Pairing
from samestep.common.mistakes.mistake import few
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.steps.recorded_run import Sums


@dataclasses.dataclass(eq=False)
class Divisors:
    """What the two frameworks divide running variances by, as inferred from their steps so far.

    Attributes:
        pairing: The tensors of both runs.
        names: The running variances that differ by the divisor alone -> n, as found at the first such step.
        is_of_b: Whether B is the run that divides by n - 1.
    """

    pairing: Pairing
    names: dict[str, float] = dataclasses.field(default_factory=dict)
    is_of_b: bool = False
    _kept: dict[int, float] = dataclasses.field(default_factory=dict)
    _begun: tuple[int, Sums] | None = None
    _last: tuple[int, Sums, Sums] | None = None
    _found: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    def explain(self, number: int, ours: Sums, theirs: Sums, rounding: np.ndarray, bound: float) -> np.ndarray:
        """Returns which tensors differ by the divisor alone after a step.

        Args:
            number: The step; -1 for the initial weights.
            ours: The weights of A.
            theirs: Those of B.
            rounding: How far rounding moves each tensor.
            bound: The largest multiple of that which a difference may be.
        """
        last = self._last
        if last is None or number > last[0]:
            self._last, self._found = (number, ours, theirs), np.zeros(len(self.pairing.tensors), bool)
        self._begun = self._begun or (number, ours)
        if last is None or number <= last[0]:  # the same step is asked for several times
            return self._found
        first, begun = self._begun
        for place, tensor in enumerate(self.pairing.tensors):
            if tensor.role != "buffer":
                continue
            v, w, v_before, w_before = (each.projections[place] for each in (ours, theirs, *last[1:]))
            seen = SeenTensor(tensor.name, "", tensor.role, v.size, v, w, float(rounding[place]), bound)
            if seen.differs and np.isfinite([v, w, v_before, w_before]).all():
                if place not in self._kept and (kept := _find_kept(seen, begun.projections[place])) is not None:
                    self._kept[place] = kept ** (1 / (number - first))
                self._found[place] = self._is_explained(place, seen, v_before, w_before - v_before, number - last[0])
        return self._found

    def _is_explained(self, place: int, seen: SeenTensor, before: np.ndarray, apart: np.ndarray, steps: int) -> bool:
        """Returns whether the divisor explains how the difference of a running variance changed over some steps."""
        if place not in self._kept:
            return False
        kept = self._kept[place] ** steps
        moved = seen.one - kept * before
        square = float(moved @ moved)
        share = float((seen.other - seen.one - kept * apart) @ moved) / square if square else 0.0
        # If only rounding moved the variances, the share may be any number. The batches of several steps may differ in size, so
        # one share for all of them is a guess, which need not hold within rounding.
        used, larger = (min(max(share, -1.0), 1.0), 1.0) if steps == 1 else (share, np.inf)
        if abs(used) > 1 or not seen.made_by(kept * apart + used * moved, larger=larger):
            return False
        if share and seen.name not in self.names:
            self.is_of_b, self.names[seen.name] = share > 0, 1 + 1 / share if share > 0 else -1 / share
        return True

    def said(self) -> str:
        """Returns a sentence on the running variances that differ."""
        biased, unbiased = "AB" if self.is_of_b else "BA"
        counts = ", ".join(dict.fromkeys(f"{count:.3g}" for count in self.names.values()))
        return (
            f"running variances ({few(list(self.names))}) move by sums of squares over n in {biased}, and over n - 1 in "
            f"{unbiased} (n is about {counts}): batch normalization of PyTorch takes n - 1, and that of Keras n; evaluation "
            "differs by that, and training does not"
        )


def _find_kept(seen: SeenTensor, begun: np.ndarray) -> float | None:
    """Returns the share of a running variance, equal at first, that all steps so far keep; None if its divisor is no cause."""
    (share, taken), *_ = np.linalg.lstsq(np.stack([seen.one, begun], 1), seen.other - seen.one)
    return -taken / share if share and 0 < -taken / share <= 1 else None
