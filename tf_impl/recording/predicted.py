"""What a model that is trained has predicted as arrays: to another one, as the critic of a GAN is, it is given as no data."""

import collections
import weakref
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from samestep.common.steps.rows import hash_rows, mix
from samestep.tf_impl.recording.plans import UpdatePlan
from samestep.tf_impl.recording.tensors import container_of

KEPT = 32
"""Arrays whose rows are known."""
MOST = 2**22
"""Numbers of an array whose rows are hashed."""


class Predicted:
    """The rows of the arrays that models have predicted last."""

    def __init__(self) -> None:
        """Has seen none."""
        self._arrays = collections.deque[tuple[weakref.ref[Any], frozenset[int]]](maxlen=KEPT)

    def add(self, model: Any, value: Any) -> None:
        """Remembers what a model predicted.

        Args:
            model: Keras'.
            value: An array, or several.
        """
        for each in keras.tree.flatten(value):
            if isinstance(each, np.ndarray) and each.ndim and 0 < each.size <= MOST and each.dtype.kind in "fiu":
                self._arrays.append((weakref.ref(model), frozenset(hash_rows([each]).tolist())))

    @property
    def is_empty(self) -> bool:
        """Whether no array was predicted."""
        return not self._arrays

    def without(self, sums: bytes | None, plans: Iterable[UpdatePlan]) -> bytes | None:
        """Returns the rows of a step that no model which is trained has predicted.

        Args:
            sums: Of the rows, what makes their hashes once it is mixed; None if nobody knows them.
            plans: Those of the optimizers, which say what is trained.
        """
        if not self._arrays or not sums:
            return sums
        trained = {id(each.container) for plan in plans for each in plan.held if each.tensor.is_trained}
        known = set[int]()
        for made, own in self._arrays:
            model = made()
            if model is not None and any(id(container_of(each)) in trained for each in model.variables):
                known |= own
        rows = np.frombuffer(sums, np.uint64)
        return rows[[each not in known for each in mix(rows).tolist()]].tobytes() or None
