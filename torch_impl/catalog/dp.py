"""`dp` in the catalogue. Imports no framework."""

from samestep.common.costs.one_process import dp
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import DATA, in_one_process
from samestep.torch_impl.rows import measures, needs, refusals

ROW = in_one_process(
    name="dp",
    summary="One process: a master sends shards of the batch and the parameters to its replicas in every forward pass.",
    goal="seeing what ddp does better",
    data_split=Answer("yes", "the master scatters each batch among its replicas"),
    model_split=Answer("no", "every replica is sent the whole model, every step"),
    hardware="several GPUs of one machine",
    axes=DATA,
    cost=dp,
    reference="torch.nn.DataParallel",
    status="discouraged; upstream recommends DistributedDataParallel, even on one machine",
    counterpart="tf:central_storage",
    emulation="threads; nn.DataParallel needs two GPUs",
    refuses=refusals.NEW_REPLICAS,
    needs=needs.check_replicas,
    measures=measures.MASTER,
)
