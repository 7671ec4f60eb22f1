"""`ep` in the catalogue. Imports no framework."""

from samestep.common.costs import textbook
from samestep.common.costs.expert import ep, ep_as_routed
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import DATA, SHARD_PER_RANK, over_ranks
from samestep.torch_impl.rows import measures, refusals

ROW = over_ranks(
    name="ep",
    summary="Each rank has some experts of each block; tokens go to the ranks that have their experts, and back.",
    goal="memory: experts, 1/N each",
    data_split=SHARD_PER_RANK,
    model_split=Answer("partial", "the experts, whole ones to a rank; everything else is on every rank"),
    axes=("expert", *DATA),
    cost=ep,
    textbook=textbook.split,
    reference="torch.distributed._functional_collectives.all_to_all_single_autograd",
    status="no API; follows GShard and Megatron-LM, with collectives that torch keeps private",
    counterpart="tf:expert",
    cost_as_measured=ep_as_routed,
    measures=measures.EXPERTS,
    refuses=refusals.NO_SWITCH | refusals.AT_OWNERS,
)
