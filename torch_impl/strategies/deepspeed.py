"""DeepSpeed's ZeRO: an engine wraps the model and its optimizer, and each higher `--zero-stage` shards one thing more.

Replicated: the parameters, at stages 1 and 2. Split: the batch; from stage 1, the optimizer state and the master copy of the
parameters that it updates; from stage 2, the gradients accumulated over micro-batches; at stage 3, the parameters. Each of these
is flattened and cut into equal partitions.
Sent: the gradients, all-reduced (stage 3: reduce-scattered); then the parameters, all-gathered once a step, or at stage 3 before
each module computes, in the forward pass and again in the backward pass.
Use it for what only DeepSpeed has, such as offloading to CPU memory or NVMe; `zero1`, `zero2` and `fsdp` use torch's own APIs.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import deepspeed
import deepspeed.runtime.zero.muon.muon_optimizer  # the engine imports it, with all of torch's compiler (0.19)
import torch

from samestep.common.strategy import Run
from samestep.common.techniques.used import without
from samestep.common.workload.models.spec import ModelSpec, num_params
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.deepspeed.engine import EngineState, EngineUpdate
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.optimizers import build_optimizer, slot_keys
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.rows.options import DeepSpeedOptions
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.upstream import without_shared_memory_op
from samestep.torch_impl.weights import named_buffers, named_weights


def engine_config(model: ModelSpec, stage: int) -> dict[str, Any]:
    """Returns the configuration of the engine, some of whose defaults would change the numbers or keep parameters whole.

    Args:
        model: The spec, whose number of parameters limits the bucket size.
        stage: The ZeRO stage.
    """
    return {
        "train_micro_batch_size_per_gpu": 1,  # the engine only counts examples with it
        "gradient_clipping": 0.0,  # the default would clip to a norm of 1.0
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": min(num_params(model), 500_000_000),  # the default takes 2 GB for any model
            # By default, models of less than a billion parameters stay whole on every rank.
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0,
            "stage3_prefetch_bucket_size": 0,
        },
    }


def build(run: Run[DeepSpeedOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    without_shared_memory_op()
    context = StepContext(run.mesh.only_axis)
    bare = build_fresh_model(run, device, context)
    optimizer = build_optimizer(run.optimizer, bare.parameters())
    named = named_weights(bare)  # ZeRO 3 leaves parameters without a shape
    settings = engine_config(run.workload.model, run.options.zero_stage)
    engine, *_ = deepspeed.initialize(model=bare, optimizer=optimizer, config=settings)

    @contextlib.contextmanager
    def exchange(last: bool) -> Iterator[None]:
        engine.set_gradient_accumulation_boundary(last)
        yield

    update = EngineUpdate(engine, run.techniques)
    state = EngineState(named, slot_keys(run.optimizer), engine, update, named_buffers(bare))
    parts = Parts(
        bare=bare,
        hardware=hardware,
        context=context,
        model=engine,
        optimizer=cast(torch.optim.Optimizer, update),
        averages_gradients=True,
        exchange=exchange,
        local_state=state,
        watch=lambda: state.followed,
    )
    # EngineUpdate transforms the gradients; the program around it never sees them.
    inner = dataclasses.replace(run, techniques=without("transform", run.techniques))
    return TrainingProgram(inner, parts)
