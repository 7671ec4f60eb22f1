"""Pipeline parallel: the layers are split over the ranks, and the batch into micro-batches that follow each other through them.

Replicated: nothing. Split: the layers, into one or two stages per rank, depending on the schedule; the batch, in time.
Sent: for each micro-batch, activations at each stage boundary and their gradients back. Ranks wait only at the start and the end.
Use it when the model does not fit on one device and the links between devices are slow; give it many micro-batches.
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
