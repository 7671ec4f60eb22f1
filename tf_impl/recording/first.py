"""The weights before the first step, looked at once they have values: those made in a graph get them when it is built."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.steps.recording import Recorder
from samestep.tf_impl.recording.plans import is_wide
from samestep.tf_impl.recording.start import Start
from samestep.tf_impl.recording.statistics import Statistics, unpack
from samestep.tf_impl.recording.tensors import Held, TensorTable


class FirstWeights:
    """The initial weights of all replicas, prepared as the options say."""

    def __init__(self, recorder: Recorder) -> None:
        """Has seen none.

        Args:
            recorder: Has the options.
        """
        self._start = Start(recorder)
        self._new: list[tuple[int, tuple[Held, ...]]] = []
        self._seen: dict[tuple[int, int], np.ndarray] = {}

    def see_model(self, model: Any) -> None:
        """Looks at a model that is about to be called eagerly, which moves its buffers before an update is seen."""
        table = TensorTable()
        table.add_model(model)
        self._prepare([(each, each.container) for each in table.held])
        self._take(0, [(each, each.container) for each in table.held if each.tensor.role == "buffer"])

    def expect(self, replica: int, held: Sequence[Held]) -> None:
        """Looks at new variables now, or when they have values.

        Args:
            replica: The replica that holds them.
            held: The variables.
        """
        self._new.append((replica, tuple(held)))
        self.see()

    def see(self) -> None:
        """Looks at the new variables that have values by now."""
        with tf.init_scope():
            for entry in list(self._new):
                replica, held = entry
                pairs = [
                    (each, each.of_replica(replica)) for each in held if (replica, id(each.container)) not in self._seen
                ]
                if all(weight.is_initialized() for _, weight in pairs):
                    self._new.remove(entry)
                    if pairs:
                        self._prepare(pairs)
                        self._start.finish()
                        self._take(replica, pairs)

    def of(self, replica: int, held: Held) -> np.ndarray | None:
        """Returns what a record keeps of a variable's first value; None if it was not seen.

        Args:
            replica: The replica that holds it.
            held: The variable.
        """
        return self._seen.get((replica, id(held.container)))

    def _prepare(self, pairs: Sequence[tuple[Held, Any]]) -> None:
        for each, weight in pairs:
            self._start.prepare(each, weight)

    def _take(self, replica: int, pairs: Sequence[tuple[Held, Any]]) -> None:
        if not pairs:
            return
        held = [each for each, _ in pairs]
        statistics = Statistics([each.layout for each in held], is_wide(held))
        words = statistics([weight.read_value() for _, weight in pairs]).numpy()
        for each, row in zip(held, unpack(words, is_wide(held)), strict=True):
            self._seen[replica, id(each.container)] = row
