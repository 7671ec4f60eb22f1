"""ZeRO stage 1: DistributedDataParallel with the optimizer state spread over the ranks.

Replicated: parameters, gradients. Split: the batch; the optimizer state, whole parameters to a rank.
Sent: the gradients, all-reduced; then each rank's updated parameters, broadcast. In all, a rank sends 3(N-1)/N of their bytes.
Use it when the model and its gradients fit on one device, but the optimizer state does not.
"""

import dataclasses
import functools

from torch.distributed.optim import ZeroRedundancyOptimizer

from samestep.common.strategy import Run
from samestep.torch_impl.axes.data import wrap
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.local_state import build_local_state
from samestep.torch_impl.observing.overlap import DdpExchange
from samestep.torch_impl.optimizers import build_optimizer, leave, matrices_of
from samestep.torch_impl.optimizers.owned import OwnedOptimizerState
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import order_ranks
from samestep.torch_impl.upstream import rank_of_parameter


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run, may_share=True)
    hardware = join_group(run, device)
    context = StepContext(run.mesh.only_axis)
    bare = build_fresh_model(run, device, context)
    model = wrap(run, bare)
    whole = build_optimizer(run.optimizer, bare.parameters(), matrices_of(run, bare))
    groups = [dict(group) for group in whole.param_groups]
    # As views of one bucket, a rank's parameters need only one broadcast.
    inner = functools.partial(leave, whole)
    optimizer = ZeroRedundancyOptimizer(groups, inner, parameters_as_bucket_view=True)  # pyrefly: ignore[bad-argument-type]
    is_plain = not order_ranks(run, model)
    exchange = DdpExchange(model)
    parts = Parts(
        bare=bare,
        hardware=hardware,
        context=context,
        model=model,
        predict=bare,  # after a forward pass without gradients, DDP would not broadcast buffers in its next one
        optimizer=optimizer,
        averages_gradients=is_plain,
        exchange=exchange,
        measures=exchange.measures if is_plain else dict,
        local_state=dataclasses.replace(
            build_local_state(run, optimizer, bare),
            optimizer_state=OwnedOptimizerState(optimizer.optim, rank_of_parameter(optimizer)),
        ),
    )
    return TrainingProgram(run, parts)
