"""Watches which tensors a script has, and their values at a given moment."""

import dataclasses
import gc
from collections.abc import Callable, Sequence, Set

import numpy as np
import torch
from torch import nn

from samestep.common.steps.record import FOLLOWER, INITIAL, Phase, RecordedStep, absent
from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.deleted import CalledModules, Owned, ids_in_use
from samestep.torch_impl.recording.own_gradients import OwnGradients
from samestep.torch_impl.recording.pieces import as_real
from samestep.torch_impl.recording.places import layouts, rank_and_world
from samestep.torch_impl.recording.statistics import Pending, Statistics
from samestep.torch_impl.recording.step.first_weights import FirstWeights, is_float64, looked_at, summaries_of
from samestep.torch_impl.recording.step.strays import Strays
from samestep.torch_impl.recording.step.written import WrittenWeights
from samestep.torch_impl.recording.tensors import find_tensors, with_places
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor, nothing

_NOBODY = torch.zeros(0)


class Watch:
    """Watches the tensors of a script, from the moment at which its first gradients exist."""

    def __init__(
        self,
        recorder: Recorder,
        called: Sequence[nn.Module],
        leaves: Sequence[TrackedTensor],
        initial: FirstWeights | None = None,
        products: str = "",
    ) -> None:
        """Finds the tensors, and writes the header and the initial weights.

        Args:
            recorder: The recorder to write to.
            called: The outermost modules that were called in training mode.
            leaves: See `find_tensors`.
            initial: The weights before the first pass, which count if the tensors are still the same.
            products: The dtype of products in the header.
        """
        self._recorder, self._held = recorder, find_tensors(called, leaves)
        # A follower may be trained later.
        self._known = {id(each.owner) for each in self._held if each.tensor.role != FOLLOWER}
        self._known_last = frozenset[int]()
        self._readers: dict[frozenset[int] | None, list[Callable[[], torch.Tensor | None]]] = {}
        self.written = WrittenWeights(recorder, self._look, self._held)
        self._owned, self._gone = [*map(Owned, called)], dict[int, np.ndarray]()
        self._classes, self._num_left = list[str](), 0  # of deleted modules; those with tensors in use
        tensors = [each.tensor for each in self._held]
        self._is_float64 = is_float64(self._held)
        self._statistics = summaries_of(self._held)
        self._bits, self._strays = np.zeros(0, np.uint64), Strays()
        self.has_first = False  # whether the tensors are the same as before the first pass
        # The bits of the last gradients, and whether tensors have been added.
        self._given, self._is_grown = np.zeros(0, np.uint64), False
        if not tensors:
            recorder.end("a backward pass ran, but no parameter of a module or an optimizer was found.")
            return
        shared = layouts([each.owner for each in self._held], called)
        recorder.begin(tensors, *rank_and_world(), self._is_float64, shared, products)
        if not recorder.is_ended:
            first = self.weights()
            size = len(initial.tensors) if initial else 0
            # An optimizer of Keras may have created its averages since then.
            if initial and size and initial.tensors == tensors[:size]:
                first[:size], self.has_first = initial.stats, size == len(tensors)
                self.written.moved = initial.written.moved if self.has_first else None
            recorder.write(RecordedStep(INITIAL, stats={"weight": first}))

    def see_new(self, own: frozenset[int], called: CalledModules) -> None:
        """Adds the tensors that a script has created since and given to an optimizer.

        Args:
            own: The ids of the parameters of the optimizer.
            called: The outermost modules.
        """
        self.written.is_within = False
        if own is self._known_last or own <= self._known:
            self._known_last = own
            return
        for generation in (1, 2):  # in this order, which keeps the order of objects
            gc.collect(generation)  # a model that is no longer trained may be a cycle
        self._num_left = 0
        self.forget_deleted(called)
        self._owned = [each for each in self._owned if each.is_deleted] + [*map(Owned, modules := called.alive())]
        names = {each.tensor.name for each in self._held}
        every = (each for each in find_tensors(modules, gone=self._classes) if each.tensor.role != FOLLOWER)
        found = [each for each in every if id(each.owner) not in self._known]
        new = [each for each in found if each.tensor.role == "parameter" or each.tensor.name not in names]
        new = with_places(new, names)
        self._known |= own | {id(each.owner) for each in new}
        if not new:  # the optimizer holds flat partitions, as DeepSpeed's does
            return
        with torch.no_grad():
            values = [each.value() for each in new]
            weights = Statistics([each.tensor.piece for each in new], self._is_float64)(values).resolve()
        self._recorder.add([each.tensor for each in new], weights)
        self._held, self._is_grown, self._bits = [*self._held, *new], True, np.append(self._bits, weights["bits"])
        self._look_anew()

    def _look_anew(self) -> None:
        """Starts over with a changed set of tensors."""
        self._readers.clear()
        self._statistics = Statistics([each.tensor.piece for each in self._held], self._is_float64)
        self.written.follow(self._held)

    def forget_deleted(self, called: CalledModules) -> None:
        """Drops the tensors of modules that the script has deleted, unless another module or an optimizer has them.

        In the record, their weights stay constant.

        Args:
            called: The outermost modules that were called.
        """
        called.has_deleted = False
        deleted = [each for each in self._owned if each.is_deleted]
        if len(deleted) <= self._num_left:  # a deleted wrapper may leave its tensors to its model for good
            return
        held = {id(each.owner) for each in self._held}
        ids = (held & set[int]().union(*(each.ids for each in deleted))) - ids_in_use()
        gone = [place for place, each in enumerate(self._held) if id(each.owner) in ids and not _is_given(each)]
        if gone:
            stats = self._seen()
            self._gone |= {place: stats[place] for place in gone}
            for place in gone:
                left = {"owner": _NOBODY, "value": nothing, "gradient": nothing, "copies": ()}
                self._held[place] = dataclasses.replace(self._held[place], **left)
            self._known = {id(each.owner) for each in self._held if each.tensor.role != FOLLOWER}
            self._known_last = frozenset()
            self._strays.forget_deleted()
            self._look_anew()
        over = [each for each in deleted if each.ids & held <= ids]
        self._classes += [each.kind for each in over]
        self._num_left = len(deleted) - len(over)
        self._owned = [each for each in self._owned if each not in over]

    def gradients(self, own: frozenset[int] | None = None, scale: torch.Tensor | None = None) -> Pending:
        """Takes the current gradients.

        Args:
            own: If given, only the gradients of parameters with these ids, and of those that no optimizer holds, are taken.
            scale: The loss scale, by which gradients are divided.
        """
        if own not in self._readers:
            self._readers[own] = [
                each.gradient if own is None or id(each.owner) in own or not each.is_updated else nothing
                for each in self._held
            ]
        with torch.no_grad():
            taken = self._statistics([read() for read in self._readers[own]])
        taken.scale = None if scale is None else scale.clone()
        return taken

    def given(self, found: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> Pending:
        """Takes gradients that are not stored in parameters, each given with its parameter."""
        real = [(parameter, None if gradient is None else as_real(gradient)) for parameter, gradient in found]
        of = {id(parameter): gradient for parameter, gradient in real}
        at = {parameter.data_ptr(): gradient for parameter, gradient in real}  # a script may recreate its tensors
        with torch.no_grad():
            return self._statistics([of.get(id(each.owner), at.get(each.value().data_ptr())) for each in self._held])

    def see_strays(self, updated: Set[int]) -> None:
        """Looks at gradients that the updates of a step did not use, before they are set to zero.

        Args:
            updated: The ids of the parameters that were updated.
        """
        if self._recorder.is_looking:
            self._strays.see(self._held, updated, self._statistics)

    def stats(self, gradients: Sequence[Pending], own: OwnGradients, updated: Set[int]) -> dict[Phase, np.ndarray]:
        """Returns what a record keeps of a finished step.

        Args:
            gradients: The gradients that optimizers were given.
            own: The gradients of this rank, before they were exchanged.
            updated: The ids of the parameters that the step updated.
        """
        self.see_strays(updated)
        before = self._bits
        found: dict[Phase, np.ndarray] = {"gradient": Pending.together(gradients), "weight": self.weights()}
        if not updated:
            self._leave_out_idle(found["gradient"], before)
        found |= self.written.phases(found["weight"])
        if strays := self._strays.taken():
            found["stray"] = Pending.together(strays)
        local = own.taken([each.owner for each in self._held], self._is_float64)
        return found if local is None else {"local": local, **found}

    def _leave_out_idle(self, gradient: np.ndarray, before: np.ndarray) -> None:
        """Drops gradients left on models that a script without an optimizer has stopped training."""
        given, self._given = self._given, gradient["bits"].copy()
        idle = np.flatnonzero(given == self._given[: len(given)]) if self._is_grown else []
        idle = [place for place in idle if before[place] == self._bits[place]]
        gradient[idle] = absent(len(idle), gradient.dtype)

    def weights(self) -> np.ndarray:
        """Returns the current weights in the form of a record."""
        stats = self._seen()
        self._bits = stats["bits"]
        return stats

    def is_moved(self) -> bool:
        """Returns whether weights have changed since they were last looked at; buffers, which each pass changes, do not count."""
        is_weight = [each.tensor.role == "parameter" for each in self._held]
        return not np.array_equal(self._seen()["bits"][is_weight], self._bits[is_weight])

    def _seen(self) -> np.ndarray:
        return self._look().resolve()

    def _look(self) -> Pending:
        pending = looked_at(self._held, self._statistics)
        if self._gone:
            pending.known = [*self._gone], np.stack([*self._gone.values()])
        return pending


def _is_given(held: TrackedTensor) -> bool:
    """Returns whether a tensor that no optimizer updates has a gradient, which a record keeps."""
    return not held.is_updated and held.gradient() is not None
