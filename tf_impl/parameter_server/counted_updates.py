"""Updates as their servers see them: one at a time on each variable, and every one counted."""

from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf


class Updates:
    """Keeps two workers from changing a variable at once, and counts the updates that have begun.

    An update is counted before its first change. If its worker dies later on, the coordinator hands the same work to
    another worker, which counts it once more. So updates counted beyond those handed out were repeated, at least in
    part.
    """

    def __init__(self, parts: Iterable[tf.Variable]) -> None:
        """Makes the counter and the locks; call it in the strategy's scope.

        Args:
            parts: Every part of every variable that updates change.
        """
        self._begun = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._lock = _lock(self._begun, "begun")
        self._locks = {part.ref(): _lock(part, f"part-{number}") for number, part in enumerate(parts)}

    def version(self) -> tf.Tensor:
        """Returns the number of updates that have begun when a worker starts to read the parameters."""
        return self._begun.read_value()

    def begin(self, version: tf.Tensor, gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
        """Counts one more update, once its gradients are computed; changes that depend on the result come later.

        Args:
            version: The result of `version` when the worker started to read the parameters.
            gradients: The gradients of the update.

        Returns:
            Its staleness: the updates of others since `version`.
        """
        with tf.control_dependencies([g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]):
            return self._lock.execute(lambda: self._begun.assign_add(1) - 1 - version)

    def alone(self, part: tf.Variable, change: Callable[[], None]) -> None:
        """Changes a part exclusively: an update reads what it writes, and must not overwrite another update.

        Args:
            part: A part of a variable.
            change: Assigns the part and its optimizer state.
        """

        def changed() -> tf.Tensor:
            change()
            return part.read_value()  # comes after the change, and the lock is held until it is there

        self._locks[part.ref()].execute(changed)

    def begun(self) -> int:
        """Returns the number of updates that have begun so far."""
        return int(self._begun.numpy())


def _lock(variable: tf.Variable, name: str) -> tf.CriticalSection:
    with tf.device(variable.device):
        return tf.CriticalSection(shared_name=name)
