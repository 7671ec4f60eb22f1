"""Detects weights that a script writes itself, after the update of a step or between two passes of a step.

The weights in a record are those with which the next step begins. Weights right after the update are looked at only in the first
steps, when a script loads weights, and for a while after it has written some. Otherwise version counters are compared and, since
these do not count writes through `p.data`, a few numbers of each tensor.
"""

import operator
from collections.abc import Callable, Sequence

import numpy as np
import torch

from samestep.common.steps.projections import Piece
from samestep.common.steps.record import MOVED, UPDATED, Phase
from samestep.common.steps.recording import DENSE_STEPS, Recorder
from samestep.torch_impl.recording.pieces import is_wrapped
from samestep.torch_impl.recording.statistics import Pending
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor

_VERSION = operator.attrgetter("_version")
_EXPECTED = 100
"""The number of steps after a write in which the script is expected to write again."""
_NUMBERS = 8
"""The approximate maximum of evenly spaced samples of a tensor."""


class Samples:
    """A few numbers of each weight that is whole and lies in memory without gaps.

    Nothing waits for a GPU until samples are compared. Meanwhile no GPU memory is kept alive, because a script may free memory
    by moving its model to the host.
    """

    def __init__(self, held: Sequence[TrackedTensor]) -> None:
        """Selects the weights; no samples are taken yet.

        Args:
            held: The tensors.
        """
        self._tensors = [each.owner for each in held if _is_plain(each)]
        self._places, self._views = list[int](), list[list[torch.Tensor]]()

    def taken(self) -> list[torch.Tensor]:
        """Returns the samples, those of each device and dtype together."""
        with torch.no_grad():
            return [torch.cat(views) for views in self._seen()]

    def num_changed(self, before: Sequence[torch.Tensor]) -> int:
        """Returns the number of tensors whose samples have changed.

        Args:
            before: The earlier samples.
        """
        if not before or len(before) != len(now := self.taken()):
            return 0
        count = 0
        for one, other, views in zip(before, now, self._seen(), strict=True):
            if _is_alike(one, other) and not torch.equal(one, other):
                parts = torch.split(one != other, [len(each) for each in views])
                count += sum(bool(each.any()) for each in parts)
        return count

    def _seen(self) -> list[list[torch.Tensor]]:
        places = [each.data_ptr() for each in self._tensors]
        if places != self._places:  # memory that a tensor has left may be freed, so old views are not read
            self._places, self._views = places, _views_of(self._tensors)
        views = self._views
        if not all(each.is_cpu for each in self._tensors):
            self._places, self._views = [], []
        return views


class WrittenWeights:
    """Follows the weights that a script writes in each step."""

    def __init__(self, recorder: Recorder, look: Callable[[], Pending], held: Sequence[TrackedTensor]) -> None:
        """Starts with nothing written.

        Args:
            recorder: The recorder, which has the number of the step.
            look: Returns the statistics of all tensors.
            held: The tensors.
        """
        self._recorder, self._look, self._expected = recorder, look, DENSE_STEPS
        self.moved: Pending | None = None
        self._updated: Pending | None = None
        self._after, self._sampled = list[int](), list[torch.Tensor]()
        self._before = 0  # the number of tensors written after a step that was not looked at
        self.is_within = False  # whether an optimizer has stepped within the step of another
        # The bits or samples right after the last update, if weights were written since.
        self._left: np.ndarray | list[torch.Tensor] | None = None
        self._is_restored = False
        self.follow(held)

    def follow(self, held: Sequence[TrackedTensor]) -> None:
        """Starts to follow tensors.

        Args:
            held: All tensors.
        """
        self._is_trained = np.array([each.is_updated and each.tensor.role == "parameter" for each in held], bool)
        trained = [each for each, is_trained in zip(held, self._is_trained, strict=True) if is_trained]
        self._trained = [each.owner for each in trained]
        self._begun, self._samples = self._versions(), Samples(trained)
        self._begun_sampled = self._samples.taken()

    def _versions(self) -> list[int]:
        return [*map(_VERSION, self._trained)]

    def see_update(self, is_nested: bool) -> None:
        """Handles the end of an optimizer's step; if it is wrapped, what the wrapper does afterwards counts as written.

        Args:
            is_nested: Whether another optimizer is still stepping.
        """
        if not is_nested and self.is_within:
            self.is_within = False
            return
        self.is_within, self._after, self._updated, self._sampled = is_nested, self._versions(), None, []
        if not self._recorder.is_looking:
            return
        if self._recorder.number < self._expected:
            self._updated = self._look()
        else:
            self._sampled = self._samples.taken()

    def see_load(self) -> None:
        """Handles the loading of weights into a module, before it happens."""
        if self._after and self._updated is None and self._recorder.is_looking:
            is_written = self._versions() != self._after or self._samples.num_changed(self._sampled)
            self._updated = None if is_written else self._look()

    def see_pass(self, is_first: bool) -> None:
        """Handles the start of a backward pass.

        Args:
            is_first: Whether it is the first of its step, before which a script may have restored what it had overwritten.
        """
        if not is_first:
            self.moved = self._look() if self._recorder.is_looking and self.is_moved() else self.moved
        elif self._left is not None and self.is_moved() and self._is_as_left(self._left):
            self._is_restored, self._begun, self._begun_sampled = True, self._versions(), self._samples.taken()

    def _is_as_left(self, left: np.ndarray | list[torch.Tensor]) -> bool:
        """Returns whether the weights are again as they were right after the last update."""
        if isinstance(left, list):
            return bool(left) and not self._samples.num_changed(left)
        return np.array_equal(self._look().resolve()["bits"][self._is_trained], left)

    def is_moved(self) -> bool:
        """Returns whether weights were written since the step began."""
        return self._versions() != self._begun or bool(self._samples.num_changed(self._begun_sampled))

    def phases(self, weights: np.ndarray) -> dict[Phase, np.ndarray]:
        """Returns what a record keeps about weights that the script has written in a finished step.

        Args:
            weights: The weights with which the next step begins.
        """
        found: dict[Phase, np.ndarray] = {}
        self._left = None
        for phase, pending in ((UPDATED, self._updated), (MOVED, self.moved)):
            stats = pending.resolve() if pending is not None else None
            if stats is None or len(stats) != len(weights):  # tensors have been added
                continue
            if phase == MOVED or (stats["bits"] != weights["bits"])[self._is_trained].any():
                found[phase] = stats
        if UPDATED in found:
            self._left = found[UPDATED]["bits"][self._is_trained]
            self._expect_more()
        return found

    def _expect_more(self) -> None:
        self._expected = self._recorder.number + _EXPECTED

    def end_step(self) -> dict[str, int]:
        """Returns the counts of a step, and begins the next step."""
        now, before, recorder = self._versions(), self._after, self._recorder
        num_changed = 0 if before == now else sum(map(operator.ne, before, now))
        if self._sampled and self._updated is None:
            num_changed = max(num_changed, self._samples.num_changed(self._sampled))
        if num_changed:
            self._expect_more()
        if self._updated is None:
            self._left = self._sampled if num_changed else None
        before, after = self._before, 0 if self._updated is not None else num_changed
        self._begun, self._after, self._sampled, self._updated, self.moved = now, [], [], None, None
        self._begun_sampled = self._samples.taken() if recorder.number + 1 < self._expected else []
        self._before, after = (0, after) if recorder.is_looking else (after, 0)
        counts = {"written_tensors": before, "written_after": after, "restored": int(self._is_restored)}
        self._is_restored = False
        return {name: count for name, count in counts.items() if count}


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors can be compared, which fails after a script casts or moves its model."""
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _is_plain(held: TrackedTensor) -> bool:
    owner = held.owner
    is_whole = type(owner) in (torch.Tensor, torch.nn.Parameter) and held.tensor.piece == Piece.whole(owner.shape)
    return is_whole and owner.layout is torch.strided and not owner.is_meta and not is_wrapped(owner)


def _views_of(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    kinds: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for each in tensors:
        has_gaps = not each.is_contiguous() and not each.is_contiguous(memory_format=torch.channels_last)
        if each.numel() and not has_gaps:
            step = max(1, each.numel() // _NUMBERS)
            view = each.detach().as_strided((-(-each.numel() // step),), (step,))
            kinds.setdefault((each.device, each.dtype), []).append(view)
    return [*kinds.values()]
