"""The passes of a script through its DataLoaders: at which step each begins, and which step is the first after it.

A loop may fetch batches ahead of what it trains on, and a script may train on batches that it has kept. So a pass is over once
models were called as often as there were batches.
"""

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from samestep.common.steps.wrapping import Wrap, followed
from samestep.torch_impl.recording.step.batches import Batches

_Count = tuple[int, int]
"""How many calls were trained on, and how many calls there were in all."""


class LoaderPasses:
    """Counts, for each step in turn, the passes that begin in it, and those that are over before it."""

    def __init__(self, is_step_over: Callable[[], bool]) -> None:
        """No pass has begun.

        Args:
            is_step_over: Says whether a step is over but for its being written.
        """
        self._is_step_over = is_step_over
        self._open: dict[int, tuple[weakref.ref[Any], list[None], _Count]] = {}
        self.num_calls, self._num_trained, self._trained_in_step, self._left = 0, 0, 0, 0
        self._begun, self._over, self._loaded = [0, 0], [0, 0], [0, 0]  # of this step, and of the next one

    def begin(self, batches: Any) -> None:
        """A pass begins.

        Args:
            batches: Yields its batches; the loop that asks for them may leave it at any time.
        """
        place, key = int(self._is_step_over()), id(batches)
        self._begun[place] += 1
        if not self._open:  # what came before it, as a validation, is of another pass
            self._loaded[place] = 0
        self._over, self._left = [0, 0], 0
        dropped = weakref.ref(batches, lambda _: self.end(key, is_left=True))
        self._open[key] = dropped, [], (self._num_trained, self.num_calls)

    def add(self, batches: Any, num_examples: int) -> None:
        """A batch is yielded.

        Args:
            batches: What `begin` was given.
            num_examples: The number in the batch. They count for the pass that began first, in which others are validations.
        """
        if (found := self._open.get(id(batches))) is not None:
            found[1].append(None)
            if id(batches) == next(iter(self._open)):
                self._loaded[int(self._is_step_over())] += num_examples

    def end(self, key: int, is_left: bool = False) -> None:
        """There are no more batches, or nobody asks for more.

        Args:
            key: The id of what `begin` was given.
            is_left: Whether there may be more; a loop that trains may leave its last batch as well.
        """
        if (found := self._open.pop(key, None)) is None or self._open:
            return
        _, yielded, (trained, called) = found
        num_used = self._num_trained - trained or self.num_calls - called
        self._left = 0 if is_left and num_used else max(0, len(yielded) - num_used)
        if not self._left:
            self._over[int(self._is_step_over() or bool(self._trained_in_step))] = True

    def train(self) -> None:
        """A model is called, and its call is trained on."""
        self._num_trained, self._trained_in_step = self._num_trained + 1, self._trained_in_step + 1
        if self._left:
            self._left -= 1
            self._over[1] = not self._left

    def end_step(self) -> dict[str, int]:
        """Returns the counts of a step, as `RecordedStep.counts` has them, and begins to count for the next one."""
        every: Sequence[list[int]] = (self._begun, self._loaded, self._over)
        begun, loaded, is_over = [each.pop(0) for each in every]
        for each in every:
            each.append(0)
        self._trained_in_step = 0
        if not (begun or is_over or loaded):
            return {}
        found = {"data_passes": begun, "passes_over": int(is_over), "loaded_examples": loaded}
        return {name: count for name, count in found.items() if count}


def follow_loaders(passes: LoaderPasses, seen: Batches, guard: Wrap) -> None:
    """Follows every DataLoader.

    Args:
        passes: Is told of passes.
        seen: Is told of batches.
        guard: Makes a hook of a function.
    """
    end, advance = guard(lambda batches: passes.end(id(batches))), _BaseDataLoaderIter.__next__

    @guard
    def add(batches: Any, batch: object) -> None:
        passes.add(batches, seen.add(batch))

    @functools.wraps(advance)
    def followed_advance(batches: Any) -> Any:
        try:
            batch = advance(batches)
        except StopIteration:
            end(batches)
            raise
        add(batches, batch)
        return batch

    begin = guard(lambda batches, _: passes.begin(batches))
    DataLoader.__iter__ = followed(DataLoader.__iter__, begin)
    _BaseDataLoaderIter.__next__ = followed_advance  # pyrefly: ignore[bad-assignment]
