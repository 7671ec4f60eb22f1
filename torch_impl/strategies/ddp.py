"""DistributedDataParallel: one process per device, each with the whole model and a shard of the batch.

Replicated: parameters, gradients, optimizer state. Split: the batch.
Sent: the gradients, all-reduced in buckets while the backward pass is still running; each rank sends 2(N-1)/N of their bytes.
Use it when the model fits on one device and you have several.
"""

from samestep.common.strategy import Run
from samestep.torch_impl.axes.data import wrap
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.local_state import build_local_state
from samestep.torch_impl.observing.overlap import DdpExchange
from samestep.torch_impl.optimizers import build_optimizer, matrices_of
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.rows.options import DdpOptions
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import hook_exchange, order_ranks, take_apart


def build(run: Run[DdpOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run, may_share=True)
    hardware = join_group(run, device)
    context = StepContext(run.mesh.only_axis)
    bare = build_fresh_model(run, device, context)
    model = wrap(run, bare, run.options.bucket_bytes)
    optimizer = build_optimizer(run.optimizer, bare.parameters(), matrices_of(run, bare))
    local_state = build_local_state(run, optimizer, bare)
    hooked, apart = hook_exchange(run, model, local_state), take_apart(run, model, local_state)
    is_plain = not order_ranks(run, model) and hooked is None
    exchange = DdpExchange(model)
    parts = Parts(
        bare=bare,
        hardware=hardware,
        context=context,
        model=model,
        predict=bare,  # after a forward pass without gradients, DDP would not broadcast buffers in its next one
        averages_gradients=is_plain,
        exchange=apart.exchange if apart else exchange,
        optimizer=optimizer,
        local_state=hooked or apart or local_state,
        measures=exchange.measures if is_plain and not apart else dict,  # others wait for their exchanges; none overlap
        after_update=apart.after_update if apart else lambda step: None,
    )
    return TrainingProgram(run, parts)
