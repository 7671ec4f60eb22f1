"""Collects the scalars of a step: those of the optimizers' groups, and others that are reported."""

import itertools
import operator
import weakref
from collections.abc import Sequence

import torch
from torch.optim import Optimizer

Scalars = dict[str, torch.Tensor | float]
_IMPLEMENTATION = {"params", "param_names", "foreach", "fused", "capturable", "differentiable"}
"""Settings that choose how an update is computed without changing the update."""


class StepScalars:
    """The scalars of each step."""

    def __init__(self) -> None:
        """Starts with no scalars."""
        self._known: dict[tuple[int, int], tuple[Sequence[object], Scalars]] = {}
        self.forget()

    def forget(self) -> None:
        """Discards everything, for a new step."""
        self._found: Scalars = {}
        self._num_groups = 0

    def add(self, name: str, value: torch.Tensor | float) -> None:
        """Adds a scalar.

        Args:
            name: The name of the scalar.
            value: Its current value.
        """
        self._found[name] = value.detach().clone() if isinstance(value, torch.Tensor) else value

    def count(self, name: str) -> None:
        """Adds one to a scalar."""
        self._found[name] = float(self._found.get(name, 0.0)) + 1

    def see(self, optimizer: Optimizer, is_again: bool = False) -> None:
        """Adds all numbers of all groups, such as "lr" for the first group of the step and "lr/1" for the second.

        Args:
            optimizer: The optimizer.
            is_again: Whether these groups are the ones that were seen last.
        """
        first = self._num_groups - len(optimizer.param_groups) * is_again
        groups = optimizer.param_groups
        settings = [*itertools.chain.from_iterable(map(dict.values, groups))]
        known, found = self._known.get(key := (id(optimizer), first), ((), {}))
        if len(known) != len(settings) or not all(map(operator.is_, known, settings)):
            found = _numbers_of(optimizer, first)
            numbers = [each for group in groups for name, each in group.items() if name not in _IMPLEMENTATION]
            is_lasting = not any(isinstance(each, list | torch.Tensor) for each in (*numbers, *found.values()))
            if key not in self._known:
                weakref.finalize(optimizer, self._known.pop, key).atexit = False  # the groups hold the parameters
            self._known[key] = (settings if is_lasting else (), found)
        self._found |= found
        self._num_groups = first + len(groups)

    def end_step(self) -> dict[str, float]:
        """Returns the scalars of the step, and begins the next step."""
        found, self._found, self._num_groups = self._found, {}, 0
        return {name: float(each) for name, each in found.items()}


def _numbers_of(optimizer: Optimizer, first: int) -> Scalars:
    found: Scalars = {}
    for place, group in enumerate(optimizer.param_groups, first):
        suffix = f"/{place}" if place else ""
        for name, value in group.items():
            if name in _IMPLEMENTATION:
                continue
            if isinstance(value, list | tuple):
                for part, each in enumerate(value):
                    _add(found, f"{name}.{part}{suffix}", each)
            else:
                _add(found, name + suffix, value)
    return found


def _add(found: Scalars, name: str, value: object) -> None:
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            found[name] = value.detach().clone()
    elif isinstance(value, int | float):
        found[name] = float(value)
