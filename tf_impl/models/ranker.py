"""The ranker: one embedding table per id, concatenated, then an MLP to one logit."""

import tensorflow as tf

from samestep.common.workload.models.ranker import RankerSpec
from samestep.tf_impl.models.layers import ACTIVATIONS, Linear, Table, VariableFactory


class Ranker:
    """Ids [batch, tables] -> logits [batch]."""

    def __init__(self, spec: RankerSpec, variable: VariableFactory) -> None:
        self.activate = ACTIVATIONS[spec.activation]
        self.tables = [Table(variable, f"tables/{i}") for i in range(len(spec.rows()))]
        self.hidden = [Linear(variable, f"hidden/{i}") for i in range(2)]
        self.output = Linear(variable, "output")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Looks up and concatenates, then runs the layers above."""
        columns = tf.unstack(x, axis=1)
        x = tf.concat([table(ids) for table, ids in zip(self.tables, columns, strict=True)], axis=1)
        for layer in self.hidden:
            x = self.activate(layer(x))
        return tf.squeeze(self.output(x), axis=1)
