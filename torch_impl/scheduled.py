"""A pass of micro-batches through a pipeline, under one of torch's schedules."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from common.config import RunConfig
from common.evidence.laws.pipelined import SCHEDULES
from torch_impl.pipeline_program import ForwardBackward, Loss, Pipe
from torch_impl.timeline import Timeline


def scheduled(
    config: RunConfig,
    pipe: Pipe,
    loss: Loss,
    timeline: Timeline,
    group: dist.ProcessGroup | None = None,
) -> ForwardBackward:
    """A pass of a whole shard under the schedule that the options name.

    Args:
        config: A checked configuration.
        pipe: The stages of this rank.
        loss: (logits, targets) of a micro-batch -> its share of the loss.
        timeline: Told of every computation.
        group: The ranks of the pipeline; all there are, unless given.
    """
    name = str(config.options["schedule"])
    chunks = [PipelineStage(stage, i, len(pipe.holders), pipe.device, group=group) for i, stage in pipe.stages.items()]
    for chunk in chunks:
        timeline.watch(chunk)
    schedule = get_schedule_class(name.replace("_", ""))(
        chunks if SCHEDULES[name].stages_per_rank > 1 else chunks[0],
        n_microbatches=int(config.options["microbatches"] or 1),
        loss_fn=loss,
        scale_grads=False,  # each micro-batch's loss is divided by the number of all targets already
    )

    def forward_backward(x: torch.Tensor | None, y: torch.Tensor | None) -> torch.Tensor | None:
        inputs = () if x is None else (x,)
        losses: list[torch.Tensor] = []
        with timeline.step():
            schedule.step(*inputs, target=y, losses=None if y is None else losses, return_outputs=False)
        return None if y is None else torch.stack(losses).detach().sum()

    return forward_backward
