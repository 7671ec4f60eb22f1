"""Follows the passes of a script through its DataLoaders: the step in which each begins, and the first step after it.

A loop may fetch batches ahead, and a script may train on batches that it has kept. So a pass is over once models have been
called as often as there were batches.
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
"""The number of calls that were trained on, and the number of all calls."""


class LoaderPasses:
    """Counts, for each step, the passes that begin in it and those that are over before it."""

    def __init__(self, is_step_over: Callable[[], bool]) -> None:
        """Starts with no pass.

        Args:
            is_step_over: Returns whether a step is over but not yet written.
        """
        self._is_step_over = is_step_over
        self._open: dict[int, tuple[weakref.ref[Any], list[None], _Count]] = {}
        self.num_calls, self._num_trained, self._trained_in_step, self._left = 0, 0, 0, 0
        self._begun, self._over, self._loaded = [0, 0], [0, 0], [0, 0]  # for this step, and for the next

    def begin(self, batches: Any) -> None:
        """Handles the start of a pass.

        Args:
            batches: The iterator over batches; the loop over it may stop at any time.
        """
        place, key = int(self._is_step_over()), id(batches)
        self._begun[place] += 1
        if not self._open:  # what came before, such as a validation, belongs to another pass
            self._loaded[place] = 0
        self._over, self._left = [0, 0], 0
        dropped = weakref.ref(batches, lambda _: self.end(key, is_left=True))
        self._open[key] = dropped, [], (self._num_trained, self.num_calls)

    def add(self, batches: Any, num_examples: int) -> None:
        """Handles a batch that is yielded.

        Args:
            batches: The iterator that `begin` was given.
            num_examples: The number of examples. Only those of the outermost pass count; inner passes are validations.
        """
        if (found := self._open.get(id(batches))) is not None:
            found[1].append(None)
            if id(batches) == next(iter(self._open)):
                self._loaded[int(self._is_step_over())] += num_examples

    def end(self, key: int, is_left: bool = False) -> None:
        """Handles the end of a pass, because there are no more batches or the loop has stopped.

        Args:
            key: The id of the iterator that `begin` was given.
            is_left: Whether the loop has stopped early, in which case it may not train on its last batch.
        """
        if (found := self._open.pop(key, None)) is None or self._open:
            return
        _, yielded, (trained, called) = found
        num_used = self._num_trained - trained or self.num_calls - called
        self._left = 0 if is_left and num_used else max(0, len(yielded) - num_used)
        if not self._left:
            self._over[int(self._is_step_over() or bool(self._trained_in_step))] = True

    def train(self) -> None:
        """Handles a call of a model that is trained on."""
        self._num_trained, self._trained_in_step = self._num_trained + 1, self._trained_in_step + 1
        if self._left:
            self._left -= 1
            self._over[1] = not self._left

    def end_step(self) -> dict[str, int]:
        """Returns the counts of a step for `RecordedStep.counts`, and starts to count for the next step."""
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
        passes: Counts the passes.
        seen: Remembers the batches.
        guard: Makes a function a hook.
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
