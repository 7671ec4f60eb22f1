"""`dtensor` in the catalogue. Imports no framework."""

from samestep.common.costs.dtensor import dtensor, dtensor_routes
from samestep.common.runtime.topology import clients
from samestep.common.strategy import Answer
from samestep.tf_impl.catalog.presets import DATA_AND_TENSOR, over_grpc
from samestep.tf_impl.rows import needs, options
from samestep.tf_impl.rows.refusals import IN_PARTS

ROW = over_grpc(
    name="dtensor",
    summary="One program over full tensors on a mesh data x tensor; TensorFlow shards them as the layouts say.",
    goal="layers that do not fit one device",
    data_split=Answer("flexible", "along the axis data, in contiguous shards"),
    model_split=Answer("flexible", "along the axis tensor: tables by rows, linear layers by column, then by row"),
    hardware="GPUs or TPU cores of one or more machines; logical devices of one CPU",
    axes=DATA_AND_TENSOR,
    topology=clients,
    refuses=IN_PARTS,
    cost=dtensor,
    routes=lambda run, ledger, backend: dtensor_routes(run),
    reference="tf.experimental.dtensor",
    status="experimental; some operations are silently wrong when sharded, see docs/tensorflow.md",
    counterpart="torch:tp",
    options=options.DTensorOptions,
    needs=needs.check_layouts,
)
