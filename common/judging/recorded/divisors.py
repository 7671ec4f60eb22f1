"""Running variances of two frameworks, of which one moves them by sums of squares over n, and the other over n - 1.

Training shows nothing of that. With v in A, w in B, and k what a step keeps of a running variance, a step makes of the difference
d = w - v: k d + s (v - k v before), where s is 1 / (n - 1) if B takes n - 1, and -1 / n if A does.
"""

import dataclasses

import numpy as np

from samestep.common.judging.recorded.pairing import Pairing
from samestep.common.mistakes.mistake import few
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.steps.recorded_run import Sums


@dataclasses.dataclass(eq=False)
class Divisors:
    """What the two frameworks divide the running variances by, as their steps so far show it.

    Attributes:
        pairing: The tensors of both runs.
        names: Those that differ by it alone, with n of the first step.
        is_of_b: Whether it is B that takes n - 1.
    """

    pairing: Pairing
    names: dict[str, float] = dataclasses.field(default_factory=dict)
    is_of_b: bool = False
    _kept: dict[int, float] = dataclasses.field(default_factory=dict)
    _begun: tuple[int, Sums] | None = None
    _last: tuple[int, Sums, Sums] | None = None
    _found: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    def explain(self, number: int, ours: Sums, theirs: Sums, rounding: np.ndarray, bound: float) -> np.ndarray:
        """Returns which tensors differ by it alone, after a step.

        Args:
            number: The step; -1 for the initial weights.
            ours: The weights of A.
            theirs: Those of B.
            rounding: As far as rounding takes each tensor.
            bound: The most of it that a difference may have.
        """
        last = self._last
        if last is None or number > last[0]:
            self._last, self._found = (number, ours, theirs), np.zeros(len(self.pairing.tensors), bool)
        self._begun = self._begun or (number, ours)
        if last is None or number <= last[0]:  # a step is asked for several times
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
        """Returns whether steps have made of the difference of a running variance what its divisor makes."""
        if place not in self._kept:
            return False
        kept = self._kept[place] ** steps
        moved = seen.one - kept * before
        square = float(moved @ moved)
        share = float((seen.other - seen.one - kept * apart) @ moved) / square if square else 0.0
        # Where only rounding has moved them, it is any number. Batches of several steps may differ in size: one share for all is
        # a guess, by which they need not be made within rounding.
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
    """Returns what all steps so far keep of a running variance that began alike; None if its divisor does not explain it."""
    (share, taken), *_ = np.linalg.lstsq(np.stack([seen.one, begun], 1), seen.other - seen.one)
    return -taken / share if share and 0 < -taken / share <= 1 else None
