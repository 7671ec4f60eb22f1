"""`central_storage` in the catalogue. Imports no framework."""

from samestep.common.costs.one_process import central_storage
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import SHARD_PER_REPLICA, in_one_process
from samestep.tf_impl.rows import needs
from samestep.tf_impl.rows.refusals import REMOTE

ROW = in_one_process(
    name="central_storage",
    summary="One process drives all devices; the variables are on the CPU, and the replicas read them there.",
    goal="memory: devices hold no optimizer state",
    data_split=SHARD_PER_REPLICA,
    model_split=Answer("no", "one device stores the whole model, each replica uses all of it"),
    hardware="several GPUs of one machine and its memory; logical devices of one CPU",
    refuses=REMOTE,
    cost=central_storage,
    reference="tf.distribute.experimental.CentralStorageStrategy",
    status="experimental; so since 2.0, and Keras' fit logs a wrong loss under it",
    counterpart="torch:dp",
    needs=needs.check_central,
)
