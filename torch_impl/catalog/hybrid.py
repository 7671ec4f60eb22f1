"""`hybrid` in the catalogue. Imports no framework."""

from samestep.common.costs.pipeline import hybrid
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import ANY_MESH, pipelined
from samestep.torch_impl.rows import needs, options, refusals

ROW = pipelined(
    name="hybrid",
    summary="Any axes at once: pipeline stages, each split inside, by positions and experts, replicated or sharded.",
    goal="models too large for any single axis",
    data_split=Answer("yes", "one contiguous shard per pipeline, then into micro-batches; by positions along context"),
    model_split=Answer(
        "yes", "stages along pipe, layers along tensor, experts along expert, and what is left along shard"
    ),
    hardware="many GPUs: tensor inside a machine, pipe between machines, data or shard outside; CPU cores over gloo",
    axes=ANY_MESH,
    cost=hybrid,
    options=options.HybridOptions,
    reference="torch.distributed.device_mesh, pipelining, tensor.parallel, fsdp.fully_shard",
    status="alpha; uses what pp, tp and fsdp use, but never DDP, which fails inside pipelines or is silently wrong (2.13)",
    needs=needs.check_three_dimensions,
    refuses=refusals.NO_SWITCH | refusals.SCHEDULED | refusals.PARTS_OF_MODELS | refusals.BY_GROUPS,
)
