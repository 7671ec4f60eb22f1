"""The ranker: one embedding table per id, concatenated, then an MLP to one logit."""

import tensorflow as tf

from samestep.common.workload.models.ranker import RankerSpec
from samestep.tf_impl.models.layers import ACTIVATIONS, Linear, Table, VariableFactory
from samestep.tf_impl.models.segmented import SegmentFunction, run_segments


class Ranker:
    """A ranker: ids [batch, tables] -> logits [batch]."""

    def __init__(self, spec: RankerSpec, variable: VariableFactory) -> None:
        self.activate = ACTIVATIONS[spec.activation]
        self.tables = [Table(variable, f"tables/{i}") for i in range(len(spec.rows()))]
        self.hidden = [Linear(variable, f"hidden/{i}") for i in range(2)]
        self.output = Linear(variable, "output")

    def segments(self) -> dict[str, SegmentFunction]:
        """Looks up and concatenates, then runs the layers above, one segment per layer."""
        return {
            "tables": self._rows,
            "hidden/0": lambda x: self.activate(self.hidden[0](x)),
            "hidden/1": lambda x: self.activate(self.hidden[1](x)),
            "output": lambda x: tf.squeeze(self.output(x), axis=1),
        }

    def _rows(self, x: tf.Tensor) -> tf.Tensor:
        columns = tf.unstack(x, axis=1)
        return tf.concat([table(ids) for table, ids in zip(self.tables, columns, strict=True)], axis=1)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x)
