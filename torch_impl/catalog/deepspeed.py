"""`deepspeed` in the catalogue. Imports no framework."""

from samestep.common.costs import textbook
from samestep.common.costs.deepspeed import deepspeed
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import data_parallel
from samestep.torch_impl.rows import needs, options, refusals

ROW = data_parallel(
    name="deepspeed",
    summary="DeepSpeed's engine: optimizer state, gradients or parameters are flattened and sharded, by ZeRO stage.",
    goal="memory, and what only DeepSpeed has",
    model_split=Answer("flexible", "stage 1: the optimizer; 2: also the gradients; 3: also the parameters"),
    cost=deepspeed,
    textbook=lambda run: textbook.zero(run, run.options.zero_stage),
    reference="deepspeed.initialize, deepspeed.DeepSpeedEngine",
    status="stable; not part of PyTorch, trains in float32 at most, and by default clips gradients to norm 1",
    needs=needs.check_engine,
    refuses=refusals.NO_SWITCH | refusals.NO_ORDER,
    options=options.DeepSpeedOptions,
    dtypes=("float32",),
    cuts_parameters=True,
    scales_loss=False,
    package="deepspeed",
)
