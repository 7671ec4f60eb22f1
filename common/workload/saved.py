"""What the parts of a model keep between forward and backward: the terms in which `common/costs/saved_activations/` adds up.

Each framework has files of them there, and its FrameworkInfo says which one a run follows.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

from samestep.common.workload.models.spec import ModelSpec, Segment


@dataclasses.dataclass(frozen=True)
class Kept:
    """What one part of a model keeps of each example, in elements unless bytes are named.

    Attributes:
        whole: On every rank of the axis `tensor`, whole.
        parts: In equal parts along it.
        sequence: In equal parts along it if the sequence is split as well, else whole.
        batch_bytes: The bytes of the batch itself; micro-batches are views of the same memory.
        fixed_bytes: For each micro-batch, however many examples it has.
        copied_bytes: For each micro-batch as well, in equal parts along `tensor`: copies of kernels that are split.
        statistics_bytes: For each micro-batch as well: the statistics of the batch, which frozen layers do not keep.
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
        """Returns the same layer with its outputs normalised over the batch.

        Args:
            elements: The elements of its outputs, of one example.
            fixed_bytes: What the normalisation keeps of a micro-batch, however many examples it has.
            statistics_bytes: What else it keeps of a micro-batch unless it is frozen.
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
"""Added to the name of a segment: what its operations behind its last parameters keep. If a stage ends with the segment, the
gradient by the stage's weights does not need it."""
AHEAD = "/ahead"
"""Added to the name of a segment: what it keeps of its input, unless the segment before it is on the same device and keeps the
same memory as its output."""
KeptBySegment = Callable[[ModelSpec, int], dict[str, Kept]]
"""(model, bytes of a number) -> what each segment keeps, and the loss; from the spec's sizes alone, at any size."""


@dataclasses.dataclass(frozen=True, eq=False)
class SavedLists:
    """How a framework keeps activations, in one way of computing.

    Attributes:
        kept: Name of a model -> what its segments and its loss keep.
        in_order: Whether an accumulation step goes backward before the next one goes forward.
        keeps_keys: Whether a segment that is computed again keeps the keys of its masks.
        copies: Whether a product that is computed again may keep a copy of its input, in another type.
        units: How many numbers of the products' type one takes that a segment returns.
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
