"""To what a run clips its gradients, and how near it came: a run that does not clip is the same if no step reached the bound."""

import dataclasses
from collections.abc import Mapping

from samestep.common.steps.gradient_transforms import CLIP_MOST, CLIP_NORM


@dataclasses.dataclass(eq=False)
class Bound:
    """The bound of one run.

    Attributes:
        most: The largest norm that clipping leaves; None if no step clips.
        norm: The largest norm of the gradient before clipping; None if none was recorded.
    """

    most: float | None = None
    norm: float | None = None

    def note(self, scalars: Mapping[str, float]) -> None:
        """Notes the scalars of a step.

        Args:
            scalars: Its scalars.
        """
        if CLIP_MOST in scalars and CLIP_NORM in scalars:
            self.most = scalars[CLIP_MOST]
            self.norm = max(scalars[CLIP_NORM], self.norm or 0.0)


def unreached(a: Bound, b: Bound) -> tuple[str, ...]:
    """Returns what is said where only one of two runs clips, and they are the same.

    Args:
        a: The bound of the one.
        b: That of the other.
    """
    for who, other, bound, of_other in (("A", "B", a, b), ("B", "A", b, a)):
        if bound.most is not None and bound.norm is not None and of_other.most is None and bound.norm <= bound.most:
            return (
                f"{who} clips its gradients to a norm of {bound.most:g}, and {other} does not; no step shows it, as the largest "
                f"norm is {bound.norm:.3g}",
            )
    return ()
