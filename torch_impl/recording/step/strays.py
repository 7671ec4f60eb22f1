"""Finds gradients left on parameters that a step did not update, in scripts with several optimizers.

If such a script does not `detach` what one network passes to another, the losses of both reach the first. That has no effect if
gradients are set to zero before the next pass; otherwise it is added to the next gradient.
"""

import weakref
from collections.abc import Sequence, Set

import torch

from samestep.torch_impl.recording.statistics import Pending, Statistics
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor

_Key = tuple[weakref.ref[torch.Tensor], int]


class Strays:
    """Finds the stray gradients of each step."""

    def __init__(self) -> None:
        """Starts with no gradients."""
        self._keys: dict[int, _Key] = {}
        self._trained: dict[int, torch.Tensor] = {}
        self._num_held = 0
        self._taken: list[Pending] = []
        self._is_over = False

    def forget_deleted(self) -> None:
        """Drops the references to all parameters."""
        self._trained, self._num_held = {}, 0

    def see(self, held: Sequence[TrackedTensor], updated: Set[int], statistics: Statistics) -> None:
        """Looks at the gradients once per step, after its updates and before gradients are set to zero.

        Args:
            held: All tensors.
            updated: The ids of the parameters that the step updated.
            statistics: Computes the statistics of all tensors.
        """
        if self._is_over or not updated:
            return
        self._is_over = True
        if self._num_held != len(held):
            trained = [each.owner for each in held if each.is_updated and each.tensor.role == "parameter"]
            self._trained, self._num_held = {id(each): each for each in trained}, len(held)
        if not self._keys and self._trained.keys() <= updated:  # true of every step of a script with one optimizer
            return
        new = {key for key, parameter in self._trained.items() if self._is_new(parameter)} - updated
        if new:
            with torch.no_grad():
                self._taken = [statistics([each.gradient() if id(each.owner) in new else None for each in held])]

    def taken(self) -> list[Pending]:
        """Returns the stray gradients of the step that ends."""
        taken, self._taken, self._is_over = self._taken, [], False
        return taken

    def _is_new(self, parameter: torch.Tensor) -> bool:
        """Returns whether a gradient has changed since it was last looked at."""
        gradient, (seen, version) = parameter.grad, self._keys.get(id(parameter), (lambda: None, -1))
        if gradient is None or (seen() is gradient and version == gradient._version):
            return False
        self._keys[id(parameter)] = weakref.ref(gradient), gradient._version
        return True
