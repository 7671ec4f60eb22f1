"""Pipeline: the layers split over the ranks, the batch into micro-batches that follow each other through them.

Replicated: nothing. Split: the layers, into one stage or two a rank as the schedule wants; the batch, in time.
Sent: per micro-batch the activations at each boundary, and their gradients back; nothing waits but at start and end.
Use it when the model fits no single device and the links between them are slow; give it many micro-batches.
"""

import torch.distributed as dist

from samestep.common.strategy import Run
from samestep.common.workload.pipeline import SCHEDULES
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.options import PipelineOptions
from samestep.torch_impl.pipeline.program import Pipe, PipelineParts, PipelineProgram
from samestep.torch_impl.pipeline.schedule import scheduled_pass
from samestep.torch_impl.pipeline.stages import build_stages
from samestep.torch_impl.pipeline.timeline import Timeline
from samestep.torch_impl.step import mean_loss


def build(run: Run[PipelineOptions]) -> PipelineProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    stage_ranks = SCHEDULES[run.options.schedule].stage_ranks(run.num_devices)
    pipe = Pipe(build_stages(run, device, stage_ranks, dist.get_rank()), stage_ranks, device)
    timeline = Timeline()
    forward_backward = scheduled_pass(run, pipe, mean_loss(run), timeline)
    return PipelineProgram(
        run,
        PipelineParts(pipe=pipe, hardware=hardware, forward_backward=forward_backward, measures=timeline.measures),
    )
