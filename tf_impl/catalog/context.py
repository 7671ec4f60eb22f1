"""`context` in the catalogue. Imports no framework."""

from samestep.common.costs.context import context
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import DATA, in_one_process
from samestep.tf_impl.rows.options import ContextOptions
from samestep.tf_impl.rows.refusals import NO_COLLECTIVES, NO_ORDER, NO_SWITCH

ROW = in_one_process(
    name="context",
    summary="Each replica takes some positions of every example; attention exchanges heads, or keys and values.",
    goal="memory: activations of long sequences",
    data_split=Answer("yes", "by positions, and along data by examples"),
    model_split=Answer("no", "every replica holds the whole model"),
    hardware="several GPUs of one machine; logical devices of one CPU",
    axes=("context", *DATA),
    refuses=NO_SWITCH | NO_ORDER | NO_COLLECTIVES,
    cost=context,
    options=ContextOptions,
    reference="tf.raw_ops.CollectiveAllToAllV2, tf.distribute.MirroredStrategy",
    status="no API; follows DeepSpeed-Ulysses, with our own collectives between the replicas of MirroredStrategy",
    counterpart="torch:cp",
)
