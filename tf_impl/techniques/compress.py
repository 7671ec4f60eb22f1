"""Compressed exchanges between replicas; the twin of `common/techniques/compress/statement.py`."""

from collections.abc import Mapping

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.techniques.collectives import Replicas
from samestep.tf_impl.techniques.pieces import Pieces
from samestep.tf_impl.techniques.powersgd import Factors


def build_compressor(
    run: Run, strategy: tf.distribute.Strategy, params: Mapping[str, tf.Variable]
) -> Pieces | Factors | None:
    """Builds the compressor that a run asks for, if it does.

    Args:
        run: With the method.
        strategy: Outside of its scope.
        params: By neutral name.
    """
    if run.techniques.compress is None:
        return None
    kind = Factors if run.techniques.compress == "powersgd" else Pieces
    return kind(run, Replicas(strategy, run.num_devices), params)
