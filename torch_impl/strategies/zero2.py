"""ZeRO stage 2: gradients and optimizer sharded; the parameters whole from the forward to the end of the backward pass.

Replicated: nothing between two steps; within a step, the parameters. Split: the batch; parameters, gradients and
optimizer, each parameter along its first dimension.
Sent: each block's parameters, gathered once a step; its gradients, reduce-scattered.
Use it when parameters and activations fit one device, but gradients and optimizer do not; it sends less than `fsdp`.
"""

from common.config import RunConfig
from common.workload.table import Workload
from torch_impl.devices import join_group, use_device
from torch_impl.program import TrainingProgram, fresh_model
from torch_impl.strategies.fsdp import shard, sharded_parts


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of one rank."""
    device = use_device(config)
    join_group(config, device)
    model = shard(workload, config, fresh_model(workload, config, device), device, reshard=False)
    return TrainingProgram(workload, config, sharded_parts(workload, config, model, device))
