"""`mirrored` in the catalogue. Imports no framework."""

from samestep.common.costs.one_process import mirrored
from samestep.common.costs.textbook import REPLICATED
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import SHARD_PER_REPLICA, in_one_process
from samestep.tf_impl.rows import needs, options
from samestep.tf_impl.rows.refusals import ONE_DTYPE

ROW = in_one_process(
    name="mirrored",
    summary="One process drives all devices; gradients are packed and all-reduced between them.",
    goal="speed, on the devices of one machine",
    data_split=SHARD_PER_REPLICA,
    model_split=Answer("no", "every replica holds the whole model"),
    hardware="several GPUs of one machine; logical devices of one CPU",
    refuses=ONE_DTYPE,
    cost=mirrored,
    textbook=REPLICATED,
    reference="tf.distribute.MirroredStrategy",
    status="stable",
    counterpart="torch:ddp",
    options=options.MirroredOptions,
    needs=needs.check_reduction,
)
