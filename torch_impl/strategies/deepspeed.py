"""DeepSpeed's ZeRO: an engine takes model and optimizer, and splits one thing more with every `--zero-stage`.

Replicated: the parameters (stages 1 and 2). Split: the batch; the optimizer, with a second copy of the parameters that it
updates, its masters (1); gradients that micro-batches accumulate (2); parameters (3): flattened, in equal stretches.
Sent: the gradients, all-reduced (3: reduce-scattered); then the parameters, gathered: once a step, or (3) each module's
before it computes, in the forward and again in the backward pass.
Use it for what only DeepSpeed has, such as offloading to CPU memory or NVMe; `zero1`, `zero2`, `fsdp` are torch's own.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import deepspeed
import torch
import torch.distributed as dist

from common.config import RunConfig
from common.workload.models.spec import num_params
from common.workload.table import Workload
from torch_impl import weights
from torch_impl.devices import join_group, use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.program import Parts, TrainingProgram, fresh_model
from torch_impl.upstream import without_shared_memory_op
from torch_impl.zero_engine import EngineProgram, EngineUpdate


def engine_config(workload: Workload, stage: int) -> dict[str, Any]:
    """What the engine is told. It has a default for everything; some change the numbers, others split nothing."""
    return {
        "train_micro_batch_size_per_gpu": 1,  # it only counts examples by it
        "gradient_clipping": 0.0,  # unless told, it clips to 1.0
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": min(num_params(workload.model), 500_000_000),  # unless told, 2 GB for any model
            # Unless told, whatever has less than a billion parameters stays whole on every rank.
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0,
            "stage3_prefetch_bucket_size": 0,
        },
    }


def build(workload: Workload, config: RunConfig) -> EngineProgram:
    """The program of one rank."""
    device, stage = use_device(config), int(config.options["zero_stage"] or 1)
    join_group(config, device)
    without_shared_memory_op()
    bare = fresh_model(workload, config, device)
    named = weights.named_weights(bare)
    optimizer = build_optimizer(workload.optimizer(config), bare.parameters())
    engine, *_ = deepspeed.initialize(model=bare, optimizer=optimizer, config=engine_config(workload, stage))

    @contextlib.contextmanager
    def exchange(last: bool) -> Iterator[None]:
        engine.set_gradient_accumulation_boundary(last)
        yield

    update = EngineUpdate(engine, config.techniques.clip_norm)
    parts = Parts(
        model=engine,
        bare=bare,
        optimizer=cast(torch.optim.Optimizer, update),
        device=device,
        shard=(dist.get_rank(), dist.get_world_size()),
        averaged_over=dist.get_world_size(),
        exchange=exchange,
        sum_losses=lambda losses: dist.all_reduce(losses),
        device_note="one process per device",
    )
    unclipped = dataclasses.replace(config, techniques=dataclasses.replace(config.techniques, clip_norm=None))
    inner = TrainingProgram(workload, unclipped, parts)
    return EngineProgram(inner, engine, update, named, stage)
