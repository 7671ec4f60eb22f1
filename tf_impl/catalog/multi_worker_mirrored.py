"""`multi_worker_mirrored` in the catalogue. Imports no framework."""

from samestep.common.costs.data_parallel import replicated
from samestep.common.costs.textbook import REPLICATED
from samestep.common.runtime.topology import workers
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import over_grpc
from samestep.tf_impl.rows import needs
from samestep.tf_impl.rows.refusals import ONE_DTYPE

ROW = over_grpc(
    name="multi_worker_mirrored",
    summary="One process per device, found through TF_CONFIG; gradients are packed and all-reduced in a ring.",
    goal="speed, when the model fits one device",
    data_split=Answer("yes", "one contiguous shard of the global batch per worker"),
    model_split=Answer("no", "every worker holds the whole model"),
    hardware="GPUs of several machines; CPU cores over gRPC",
    topology=workers,
    refuses=ONE_DTYPE,
    cost=replicated,
    textbook=REPLICATED,
    reference="tf.distribute.MultiWorkerMirroredStrategy",
    status="stable; Keras 3.15's fit fails under it, so a custom loop is the only way",
    counterpart="torch:c10d",
    needs=needs.check_exchange,
)
