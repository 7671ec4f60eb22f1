"""What the parts of a model keep between the forward and the backward pass; `common/costs/saved_activations/` adds it up.

Each framework has lists there, and its FrameworkInfo selects the list for a run.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

from samestep.common.workload.models.spec import ModelSpec, Segment


@dataclasses.dataclass(frozen=True)
class Kept:
    """What one part of a model keeps for each example, in elements unless the name says bytes.

    Attributes:
        whole: Elements that every rank of the axis `tensor` keeps whole.
        parts: Elements that are kept in equal parts along that axis.
        sequence: Elements that are kept in equal parts along it if the sequence is split as well, and whole otherwise.
        batch_bytes: Bytes of the batch itself that are kept; micro-batches are views of the same memory.
        fixed_bytes: Bytes that are kept for each micro-batch, for any number of examples.
        copied_bytes: Bytes of copies of split kernels, for each micro-batch, in equal parts along `tensor`.
        statistics_bytes: Bytes of the statistics of the batch, for each micro-batch, which frozen layers do not keep.
        masks: Bytes of masks, one for each number that may be dropped: whole, in parts, and by sequence, as above.
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
            splits_sequence: Whether the sequence is split along that axis.
        """
        elements, masks = (
            whole + parts // num_parts + sequence // (num_parts if splits_sequence else 1)
            for whole, parts, sequence in ((self.whole, self.parts, self.sequence), self.masks)
        )
        return elements, masks

    def normalized(self, elements: int, fixed_bytes: int = 0, statistics_bytes: int = 0) -> "Kept":
        """Returns the same layer with its outputs normalized over the batch.

        Args:
            elements: The number of elements in its outputs, for one example.
            fixed_bytes: The bytes that the normalization keeps for each micro-batch, for any number of examples.
            statistics_bytes: The further bytes that it keeps for each micro-batch unless it is frozen.
        """
        return dataclasses.replace(
            self,
            whole=self.whole + elements,
            fixed_bytes=self.fixed_bytes + fixed_bytes,
            statistics_bytes=self.statistics_bytes + statistics_bytes,
        )


LOSS = "loss"
"""The name of the loss among the segments."""
BEHIND = "/behind"
"""The suffix of a segment's name for what its operations after its last parameters keep. If a stage ends with the segment, the
stage's weight gradients do not need it."""
AHEAD = "/ahead"
"""The suffix of a segment's name for what it keeps of its input, unless the segment before it is on the same device and keeps
the same memory as its output."""
KeptBySegment = Callable[..., dict[str, Kept]]
"""(spec of the model, bytes of a number) -> what each segment and the loss keep, from the sizes of the spec alone."""


@dataclasses.dataclass(frozen=True, eq=False)
class SavedLists:
    """The activations that a framework keeps, for one way of computing.

    Attributes:
        kept: The name of a model -> what its segments and its loss keep.
        in_order: Whether the backward pass of an accumulation step comes before the forward pass of the next one.
        keeps_keys: Whether a segment that is recomputed keeps the keys of its masks.
        copies: Whether a product that is recomputed may keep a copy of its input, in another dtype.
        units: (model, segment) -> the size of a number that the segment returns, relative to the products' dtype.
    """

    kept: Mapping[str, KeptBySegment]
    in_order: bool
    keeps_keys: bool = False
    copies: bool = False
    units: Callable[[ModelSpec, Segment], int] = lambda model, segment: 1


@functools.lru_cache(maxsize=64)
def keep_all(lists: SavedLists, model: ModelSpec, item_bytes: int) -> Mapping[str, Kept]:
    """Returns what the segments and the loss of a model keep.

    Args:
        lists: The lists of the framework.
        model: The spec of the model.
        item_bytes: The bytes of a number in the products' dtype.
    """
    return lists.kept[model.name](model, item_bytes)
