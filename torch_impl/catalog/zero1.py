"""`zero1` in the catalogue. Imports no framework."""

from samestep.common.costs.textbook import ZERO1
from samestep.common.costs.zero import zero1
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import data_parallel
from samestep.torch_impl.rows import measures, needs, refusals

ROW = data_parallel(
    name="zero1",
    summary="DDP, with the optimizer state spread over the ranks: each updates some parameters and broadcasts them.",
    goal="memory: the optimizer state, 1/N each",
    model_split=Answer("partial", "only the optimizer state, that of whole parameters to each rank"),
    refuses=refusals.BROADCASTS,
    cost=zero1,
    textbook=ZERO1,
    needs=needs.refuse_some,
    reference="torch.distributed.optim.ZeroRedundancyOptimizer",
    measures=measures.OVERLAP,
    status="experimental; upstream calls it subject to change and develops fully_shard",
)
