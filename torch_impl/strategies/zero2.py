"""ZeRO stage 2: gradients and optimizer sharded; the parameters whole from the forward to the end of the backward pass.

Replicated: nothing between two steps; within a step, the parameters. Split: the batch; parameters, gradients and
optimizer, each parameter along its first dimension.
Sent: each block's parameters, gathered once a step; its gradients, reduce-scattered.
Use it when parameters and activations fit one device, but gradients and optimizer do not; it sends less than `fsdp`.
"""

from samestep.common.strategy import Run
from samestep.torch_impl.program import TrainingProgram
from samestep.torch_impl.strategies.fsdp import build_sharded


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    return build_sharded(run, reshard=False)
