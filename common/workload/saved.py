"""What the parts of a model keep between the forward and the backward pass, for `common/costs/saved_activations/` to add up.

Each framework has lists there, and its FrameworkInfo says which one applies to a run.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

from samestep.common.workload.models.spec import ModelSpec, Segment


@dataclasses.dataclass(frozen=True)
class Kept:
    """What one part of a model keeps for each example, in elements unless bytes are named.

    Attributes:
        whole: What every rank of the axis `tensor` keeps whole.
        parts: What is kept in equal parts along it.
        sequence: What is kept in equal parts along it if the sequence is split as well, and whole otherwise.
        batch_bytes: What is kept of the batch itself; micro-batches are views of the same memory.
        fixed_bytes: What is kept for each micro-batch, for any number of examples.
        copied_bytes: Copies of split kernels, for each micro-batch, in equal parts along `tensor`.
        statistics_bytes: The statistics of the batch, for each micro-batch, which frozen layers do not keep.
        masks: The bytes of masks, one for each number that may be dropped: whole, in parts, and by the sequence, as above.
    """

    whole: int = 0
    parts: int = 0
    sequence: int = 0
    batch_bytes: int = 0
    fixed_bytes: int = 0
    copied_bytes: int = 0
    statistics_bytes: int = 0
    masks: tuple[int, int, int] = (0, 0, 0)

    def on_rank(self, num_parts: int, splits_sequence: bool) -> tuple[int, int]:
        """Adds up the elements of one rank, and the bytes of its masks.

        Args:
            num_parts: The size of the axis `tensor`.
            splits_sequence: Whether the sequence is split along it.
        """
        elements, masks = (
            whole + parts // num_parts + sequence // (num_parts if splits_sequence else 1)
            for whole, parts, sequence in ((self.whole, self.parts, self.sequence), self.masks)
        )
        return elements, masks

    def normalized(self, elements: int, fixed_bytes: int = 0, statistics_bytes: int = 0) -> "Kept":
        """Returns the same layer with its outputs normalized over the batch.

        Args:
            elements: The elements of its outputs, for one example.
            fixed_bytes: What the normalization keeps for a micro-batch, for any number of examples.
            statistics_bytes: What else it keeps for a micro-batch unless it is frozen.
        """
        return dataclasses.replace(
            self,
            whole=self.whole + elements,
            fixed_bytes=self.fixed_bytes + fixed_bytes,
            statistics_bytes=self.statistics_bytes + statistics_bytes,
        )


LOSS = "loss"
"""The name under which the loss stands beside the segments."""
BEHIND = "/behind"
"""The suffix of a segment's name for what its operations after its last parameters keep. If a stage ends with the segment, the
gradient by the stage's weights does not need it."""
AHEAD = "/ahead"
"""The suffix of a segment's name for what it keeps of its input, unless the segment before it is on the same device and keeps
the same memory as its output."""
KeptBySegment = Callable[..., dict[str, Kept]]
"""(spec of its model, bytes of a number) -> what each segment and the loss keep, from the spec's sizes alone."""


@dataclasses.dataclass(frozen=True, eq=False)
class SavedLists:
    """How a framework keeps activations, in one way of computing.

    Attributes:
        kept: Name of a model -> what its segments and its loss keep.
        in_order: Whether an accumulation step goes backward before the next one goes forward.
        keeps_keys: Whether a segment that is recomputed keeps the keys of its masks.
        copies: Whether a product that is recomputed may keep a copy of its input, in another type.
        units: The size of a number that a segment returns, in numbers of the products' type.
    """

    kept: Mapping[str, KeptBySegment]
    in_order: bool
    keeps_keys: bool = False
    copies: bool = False
    units: Callable[[ModelSpec, Segment], int] = lambda model, segment: 1


@functools.lru_cache(maxsize=64)
def keep_all(lists: SavedLists, model: ModelSpec, item_bytes: int) -> Mapping[str, Kept]:
    """Lists what segments and the loss keep.

    Args:
        lists: Those of the framework.
        model: The spec.
        item_bytes: The bytes of a number, as products take it.
    """
    return lists.kept[model.name](model, item_bytes)
