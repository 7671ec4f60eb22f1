"""The bound to which a run clips its gradients, and whether a step reached it: if none did, clipping makes no difference."""

import dataclasses
from collections.abc import Mapping

from samestep.common.steps.gradient_transforms import CLIP_EACH, CLIP_MOST, CLIP_NORM, CLIP_VALUE

_WORDS = {
    CLIP_VALUE: "each number of its gradients to {:g}",
    CLIP_EACH: "the gradient of each tensor to a norm of {:g}",
}


@dataclasses.dataclass(eq=False)
class Bound:
    """The bounds to which one run clips its gradients.

    Attributes:
        most: The largest norm that clipping leaves; None if no step clips.
        norm: The largest norm of the gradient before clipping; None if none was recorded.
        others: Bounds for which a record does not show whether they were reached, by the names of their scalars.
    """

    most: float | None = None
    norm: float | None = None
    others: dict[str, float] = dataclasses.field(default_factory=dict)

    def note(self, scalars: Mapping[str, float]) -> None:
        """Notes the bounds and norms in the scalars of a step."""
        if CLIP_MOST in scalars and CLIP_NORM in scalars:
            self.most = scalars[CLIP_MOST]
            self.norm = max(scalars[CLIP_NORM], self.norm or 0.0)
        self.others |= {name: scalars[name] for name in _WORDS if name in scalars}


def unreached(a: Bound, b: Bound) -> tuple[str, ...]:
    """Returns the note on two runs that are the same although only one of them clips.

    Args:
        a: The bound of run A.
        b: The bound of run B.
    """
    for who, other, bound, of_other in (("A", "B", a, b), ("B", "A", b, a)):
        if bound.most is not None and bound.norm is not None and of_other.most is None and bound.norm <= bound.most:
            return (
                f"{who} clips its gradients to a norm of {bound.most:g}, and {other} does not; no step shows it, as the largest "
                f"norm is {bound.norm:.3g}",
            )
    return tuple(f"{each}; no step shows it" for each in one_sided(a, b))


def one_sided(a: Bound, b: Bound) -> tuple[str, ...]:
    """Returns notes on clipping that only one of two runs does and for which a record keeps no norm.

    Args:
        a: The bound of run A.
        b: The bound of run B.
    """
    return tuple(
        f"{who} clips {_WORDS[name].format(most)}, and {other} does not"
        for who, other, bound, of_other in (("A", "B", a, b), ("B", "A", b, a))
        for name, most in bound.others.items()
        if name not in of_other.others
    )
