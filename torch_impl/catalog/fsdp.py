"""`fsdp` in the catalogue. Imports no framework."""

from samestep.common.costs.textbook import ZERO3
from samestep.common.costs.zero import fsdp
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import SHARDED, data_parallel
from samestep.torch_impl.rows import needs, options, refusals

ROW = data_parallel(
    name="fsdp",
    summary="Everything sharded; each block's parameters are gathered only while it computes.",
    goal="memory: models too large for one device",
    model_split=Answer("yes", "each parameter along its first dimension, gathered block by block"),
    hardware="several GPUs with fast links, HSDP (data=2,shard=8) for more machines; CPU cores over gloo",
    axes=SHARDED,
    options=options.ContextOptions,
    cost=fsdp,
    textbook=ZERO3,
    needs=needs.check_shards,
    refuses=refusals.NO_SWITCH | refusals.BY_GROUPS,
    reference="torch.distributed.fsdp.fully_shard",
    status="stable; replaces FullyShardedDataParallel (FSDP1), which is deprecated",
)
