"""ZeRO stage 2: gradients and optimizer state are sharded; parameters are whole from the forward pass to the end of the backward.

Replicated: nothing between steps; within a step, the parameters. Split: the batch; parameters, gradients and optimizer state,
each parameter along its first dimension.
Sent: each block's parameters, all-gathered once a step; its gradients, reduce-scattered.
Use it when parameters and activations fit on one device, but gradients and optimizer state do not; it sends less than `fsdp`.
"""

from samestep.common.strategy import Run
from samestep.torch_impl.program import TrainingProgram
from samestep.torch_impl.strategies.fsdp import build_sharded


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    return build_sharded(run, reshard=False)
