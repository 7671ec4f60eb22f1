"""Parameters that two stages of a pipeline use; each stage has a copy, and computes one of the two terms of its gradient.

The ranks of the two stages exchange these terms once a step, and both add them in the same order. So the copies get the same
updates and stay bitwise equal.

References:
    Shoeybi et al., arXiv 1909.08053, and Megatron-LM's embedding group, which all-reduces the same halves.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from samestep.common.strategy import Run
from samestep.common.workload.models.spec import shared_parameters
from samestep.common.workload.pipeline_schedule import group_segments
from samestep.torch_impl.pipeline.stages import Stage
from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.weights import named_weights


class SharedCopies:
    """The parameters of this rank of which another rank has a copy."""

    def __init__(
        self,
        run: Run,
        stages: Mapping[int, Stage],
        context: StepContext,
        stage_ranks: Sequence[int],
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Finds these parameters.

        Args:
            run: The run.
            stages: The stages that this rank holds, by index.
            context: The context that the stages were built with.
            stage_ranks: The global rank that holds each stage.
            group: The ranks of the pipeline; None stands for all ranks.
        """
        self._group, self._recorder = group, context.recorder
        grouped = group_segments(run.workload.model.segments(), len(stage_ranks))
        self._stages = stages
        self._others: dict[str, tuple[int, int, bool]] = {}
        for name, (first, *_, last) in shared_parameters(run.workload.model).items():
            here, there = (next(i for i, segments in enumerate(grouped) if user in segments) for user in (first, last))
            if stage_ranks[here] == stage_ranks[there]:
                continue
            if here in stages:
                self._others[name] = here, stage_ranks[there], True
            elif there in stages:
                self._others[name] = there, stage_ranks[here], False

    def _parameter(self, name: str) -> nn.Parameter:
        """Returns the current parameter object; sharding a stage replaces its parameters by new ones."""
        return named_weights(self._stages[self._others[name][0]].model)[name].parameter

    def counted(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the gradients that count on this rank for the norm of the whole gradient."""
        second = {id(self._parameter(name).grad) for name, (_, _, is_first) in self._others.items() if not is_first}
        return [gradient for gradient in gradients if id(gradient) not in second]

    @contextlib.contextmanager
    def exchange(self, last: bool) -> Iterator[None]:
        """Returns the context of the passes of a micro-batch; after the last one, the two terms are exchanged and summed."""
        yield
        for name, (_, rank, is_first) in self._others.items() if last else ():
            own = local_part(self._parameter(name).grad)  # pyrefly: ignore[bad-argument-type]
            other = torch.empty_like(own)
            self._recorder.phase = "backward"
            both = ((dist.isend, own), (dist.irecv, other))
            for work in dist.batch_isend_irecv([dist.P2POp(*each, rank, self._group) for each in both]):
                work.wait()
            own.copy_(own + other if is_first else other + own)
