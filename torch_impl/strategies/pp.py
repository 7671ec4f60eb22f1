"""Pipeline: the layers split over the ranks, the batch into micro-batches that follow each other through them.

Replicated: nothing. Split: the layers, into one stage or two a rank as the schedule wants; the batch, in time.
Sent: per micro-batch the activations at each boundary, and their gradients back; nothing waits but at start and end.
Use it when the model fits no single device and the links between them are slow; give it many micro-batches.
"""

import torch.distributed as dist

from common.config import RunConfig
from common.evidence.laws.pipelined import holders_of
from common.workload.table import Workload
from torch_impl.devices import join_group, use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.pipeline_program import Pipe, PipelineParts, PipelineProgram, mean_loss
from torch_impl.scheduled import scheduled
from torch_impl.stages import build_stages, named_weights
from torch_impl.timeline import Timeline


def build(workload: Workload, config: RunConfig) -> PipelineProgram:
    """The program of one rank."""
    device = use_device(config)
    join_group(config, device)
    holders = holders_of(config)
    pipe = Pipe(build_stages(workload, config, device, holders, dist.get_rank()), holders, device)
    parameters = [weight.parameter for weight in named_weights(pipe.stages).values()]
    timeline = Timeline()
    parts = PipelineParts(
        pipe=pipe,
        optimizer=build_optimizer(workload.optimizer(config), parameters),
        forward_backward=scheduled(config, pipe, mean_loss(workload, config), timeline),
        measures=timeline.measures,
    )
    return PipelineProgram(workload, config, parts)
