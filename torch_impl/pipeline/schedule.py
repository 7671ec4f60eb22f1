"""A pass of micro-batches through a pipeline, under one of torch's schedules."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from samestep.common.strategy import Run
from samestep.common.workload.pipeline import SCHEDULES
from samestep.torch_impl.options import PipelineOptions
from samestep.torch_impl.pipeline.program import Pipe, PipelinePass
from samestep.torch_impl.pipeline.timeline import Timeline
from samestep.torch_impl.step import Loss


def scheduled_pass(
    run: Run[PipelineOptions], pipe: Pipe, loss: Loss, timeline: Timeline, group: dist.ProcessGroup | None = None
) -> PipelinePass:
    """Makes a pass of a whole shard, under the schedule that the options name.

    Args:
        run: What is trained.
        pipe: The stages of this rank.
        loss: (logits, targets) of a micro-batch -> its share of the loss.
        timeline: Records every computation.
        group: The ranks of the pipeline; all there are, unless given.
    """
    name = run.options.schedule
    chunks = [PipelineStage(s, i, len(pipe.stage_ranks), pipe.device, group=group) for i, s in pipe.stages.items()]
    for chunk in chunks:
        timeline.watch(chunk)
    schedule = get_schedule_class(name.replace("_", ""))(
        chunks if SCHEDULES[name].stages_per_rank > 1 else chunks[0],
        n_microbatches=run.options.microbatches,
        loss_fn=loss,
        scale_grads=False,  # each micro-batch's loss is divided by the number of all targets already
    )

    def forward_backward(x: torch.Tensor | None, y: torch.Tensor | None) -> torch.Tensor | None:
        inputs = () if x is None else (x,)
        losses: list[torch.Tensor] = []
        with timeline.step():
            schedule.step(*inputs, target=y, losses=None if y is None else losses, return_outputs=False)
        return None if y is None else torch.stack(losses).sum()

    return forward_backward
