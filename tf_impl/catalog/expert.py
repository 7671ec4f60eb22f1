"""`expert` in the catalogue. Imports no framework."""

from samestep.common.costs.expert import expert
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import DATA, SHARD_PER_REPLICA, in_one_process
from samestep.tf_impl.rows.refusals import NO_COLLECTIVES, NO_ORDER, NO_SWITCH, OWN_VARIABLES

ROW = in_one_process(
    name="expert",
    summary="Each replica has some experts of each block; tokens go to the replicas that have their experts, and back.",
    goal="memory: experts, 1/N each",
    data_split=SHARD_PER_REPLICA,
    model_split=Answer("partial", "the experts, whole ones to a replica; everything else is on every replica"),
    hardware="several GPUs of one machine; logical devices of one CPU",
    axes=("expert", *DATA),
    refuses=NO_SWITCH | NO_ORDER | NO_COLLECTIVES | OWN_VARIABLES,
    cost=expert,
    reference="tf.raw_ops.CollectiveAllToAllV2, tf.distribute.MirroredStrategy",
    status="no API; follows GShard, with our own collectives between the replicas of MirroredStrategy",
    counterpart="torch:ep",
)
