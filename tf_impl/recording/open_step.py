"""The step that an update has ended and that others may join: optimizers of different variables take one step after one pass."""

import weakref
from typing import Any

import tensorflow as tf


class OpenStep:
    """The step that an update has ended: until a tape begins, or a model is given data, updates of other variables belong to it.

    A graph runs its operations in the order in which it was built, so what is known while it is built holds in every call.
    """

    def __init__(self) -> None:
        """Starts without an open step."""
        self._graph: weakref.ref[Any] | None = None
        self._updated = frozenset[int]()

    def close(self) -> None:
        """Closes the step: a pass begins, or it is not known, while a graph is built, what another optimizer does to the step."""
        self._graph = None

    def takes(self, updated: frozenset[int]) -> bool:
        """Returns whether an update belongs to the step.

        Args:
            updated: The ids of its variables.
        """
        is_open = self._graph is not None and self._graph() is tf.compat.v1.get_default_graph()
        return is_open and self._updated.isdisjoint(updated)

    def add(self, updated: frozenset[int]) -> None:
        """Adds an update to the step, or begins another step with it.

        Args:
            updated: The ids of its variables.
        """
        self._updated = updated | self._updated if self.takes(updated) else updated
        self._graph = weakref.ref(tf.compat.v1.get_default_graph())
