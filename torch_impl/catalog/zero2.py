"""`zero2` in the catalogue. Imports no framework."""

from samestep.common.costs.textbook import ZERO2
from samestep.common.costs.zero import zero2
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import SHARDED, data_parallel
from samestep.torch_impl.rows import needs, options, refusals

ROW = data_parallel(
    name="zero2",
    summary="Gradients and optimizer state sharded; parameters gathered block by block and kept for the whole step.",
    goal="memory: also the gradients, 1/N each",
    model_split=Answer("partial", "each parameter along its first dimension, but whole during the step"),
    axes=SHARDED,
    options=options.ContextOptions,
    cost=zero2,
    textbook=ZERO2,
    needs=needs.check_shards,
    refuses=refusals.NO_SWITCH | refusals.BY_GROUPS,
    reference="torch.distributed.fsdp.fully_shard(reshard_after_forward=False)",
    status="stable; replaces FullyShardedDataParallel(SHARD_GRAD_OP), which is deprecated",
)
