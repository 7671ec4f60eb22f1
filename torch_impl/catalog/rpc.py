"""`rpc` in the catalogue. Imports no framework."""

from samestep.common.costs.rpc import rpc, rpc_routes
from samestep.common.runtime.topology import ranks
from samestep.torch_impl.catalog.presets import EQUAL_STAGES, PIPE, WHOLE_BATCH, over_rpc
from samestep.torch_impl.rows import needs, refusals

ROW = over_rpc(
    name="rpc",
    summary="Stages of layers on RPC workers, driven by one of them; autograd and the optimizer work across calls.",
    goal="irregular models that fit no pipeline",
    data_split=WHOLE_BATCH,
    model_split=EQUAL_STAGES,
    hardware="CPU cores on one or more machines; GPUs need a device map",
    axes=PIPE,
    topology=ranks,
    cost=rpc,
    routes=lambda run, ledger, backend: rpc_routes(run),
    refuses=refusals.BY_CALLS,
    reference="torch.distributed.rpc, torch.distributed.autograd, torch.distributed.optim.DistributedOptimizer",
    needs=needs.check_stages,
)
