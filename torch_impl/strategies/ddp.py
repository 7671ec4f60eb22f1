"""DistributedDataParallel: one process per device, each with the whole model and a shard of the batch.

Replicated: parameters, gradients, optimizer. Split: the batch.
Sent: the gradients, all-reduced in buckets while the backward pass still runs; a rank sends 2(N-1)/N of their bytes.
Use it when the model fits one device and you have several.
"""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from samestep.common.strategy import Run
from samestep.common.workload.models.reached import may_skip
from samestep.torch_impl.devices import join_group, own_shard, use_device
from samestep.torch_impl.local_state import build_local_state
from samestep.torch_impl.observing.overlap import DdpExchange
from samestep.torch_impl.optimizers import build_optimizer
from samestep.torch_impl.program import HeldState, Parts, TrainingProgram, build_fresh_model
from samestep.torch_impl.rows.options import DdpOptions
from samestep.torch_impl.techniques.compress import CompressedState, build_compressor, exchange_bucket

MEBIBYTE = 1 << 20
ONE_BUCKET = 1 << 60
"""More than any model has."""


def wrap(run: Run, bare: nn.Module, bucket_bytes: int | None = None) -> DistributedDataParallel:
    """Wraps a model in DDP; the gradients are views of the buckets, which saves a second copy of them.

    Args:
        run: What is trained; without overlap all gradients go into one bucket, which is full when the last one is there.
        bare: The model.
        bucket_bytes: About the size of a bucket; None leaves it to DDP.
    """
    if run.techniques.overlap is False:
        bucket_bytes = ONE_BUCKET
    cap = None if bucket_bytes is None else bucket_bytes / MEBIBYTE
    find = may_skip(run.workload.model)  # which costs a look at the graph, and a number for each parameter
    return DistributedDataParallel(bare, gradient_as_bucket_view=True, bucket_cap_mb=cap, find_unused_parameters=find)


def build(run: Run[DdpOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run, may_share=True)
    hardware = join_group(run, device)
    bare = build_fresh_model(run, device)
    model = wrap(run, bare, run.options.bucket_bytes)
    optimizer = build_optimizer(run.optimizer, bare.parameters())
    local_state: HeldState = build_local_state(run, optimizer, bare)
    compresses = run.techniques.compress is not None
    if compresses:
        local_state = CompressedState(run, local_state, build_compressor(run, local_state.trained))
        model.register_comm_hook(local_state, exchange_bucket)
    exchange = DdpExchange(model)
    parts = Parts(
        bare=bare,
        hardware=hardware,
        model=model,
        predict=bare,  # after a forward pass without gradients, DDP's next one would not broadcast the buffers
        shard=own_shard(),
        averages_gradients=not compresses,
        exchange=exchange,
        optimizer=optimizer,
        local_state=local_state,
        measures=dict if compresses else exchange.measures,  # compression waits for its exchanges and hides none
    )
    return TrainingProgram(run, parts)
