"""Pipeline: the layers split over the ranks, the batch into micro-batches that follow each other through them.

Replicated: nothing. Split: the layers, into one stage or two a rank as the schedule wants; the batch, in time.
Sent: per micro-batch the activations at each boundary, and their gradients back; nothing waits but at start and end.
Use it when the model fits no single device and the links between them are slow; give it many micro-batches.
"""

from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.torch_impl.axes.pipe import build_pipe, scheduled_parts
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.program import TrainingProgram
from samestep.torch_impl.rows.options import PipelineOptions


def build(run: Run[PipelineOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    stage_ranks = SCHEDULES[run.options.schedule].stage_ranks(run.num_devices)
    return TrainingProgram(run, scheduled_parts(run, build_pipe(run, device, stage_ranks), hardware))
