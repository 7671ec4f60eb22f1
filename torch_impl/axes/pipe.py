"""The axis `pipe`: the model is split between layers, each rank holds stages, and rank 0 reports for all ranks."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from samestep.common.program import Hardware, TrainState
from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.torch_impl.devices import own_part
from samestep.torch_impl.local_state import build_local_state, gather_states, merge
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.models.segmented import Handed, tensors_of
from samestep.torch_impl.optimizers import build_optimizer, matrices_of
from samestep.torch_impl.pipeline.shared_copies import SharedCopies
from samestep.torch_impl.pipeline.stage_events import Timeline
from samestep.torch_impl.pipeline.stages import Stage, build_stages
from samestep.torch_impl.program import Parts
from samestep.torch_impl.rows.options import PipelineOptions
from samestep.torch_impl.sharded import full_tensor
from samestep.torch_impl.step import mean_loss, norm_over_ranks
from samestep.torch_impl.step_context import StepContext

_MOST_DIMS = 8
"""The largest number of dims of an activation; the header that holds its shape has a fixed size."""


@dataclasses.dataclass(frozen=True)
class Pipe:
    """One pipeline, as seen from one of its ranks.

    Attributes:
        stages: The stages that this rank holds, by index.
        context: The context that the stages were built with.
        stage_ranks: The global rank that holds each stage.
        device: The device of this process.
        dtype: The dtype of activations.
        copies: The parameters of which another rank of the pipeline has a copy.
        group: The ranks of the pipeline; None stands for all ranks.
        reports: Whether this rank's losses, norm and weights count, because it is not a replica of another rank.
    """

    stages: Mapping[int, Stage]
    context: StepContext
    stage_ranks: tuple[int, ...]
    device: torch.device
    dtype: torch.dtype
    copies: SharedCopies
    group: dist.ProcessGroup | None
    reports: bool

    @property
    def has_first(self) -> bool:
        """Whether this rank holds the first stage."""
        return 0 in self.stages

    @property
    def has_last(self) -> bool:
        """Whether this rank holds the last stage."""
        return len(self.stage_ranks) - 1 in self.stages

    def no_loss(self) -> torch.Tensor:
        """Returns a loss of zero for a rank that does not hold the last stage, because the losses of all ranks are summed."""
        return torch.zeros((), device=self.device, dtype=self.dtype)

    def predict(self, x: Inputs | Handed) -> torch.Tensor:
        """Returns logits, computed stage by stage; the last stage sends them to rank 0."""
        rank = dist.get_rank()
        for index, (here, there) in enumerate(itertools.pairwise((*self.stage_ranks, self.stage_ranks[0]))):
            if rank == here:
                handed = tuple(map(full_tensor, tensors_of(self.stages[index](x))))
                for each in handed if there != here else ():
                    self._hand_on(each, len(handed), there)
            elif rank == there:
                first, count = self._take(here)
                handed = (first, *(self._take(here)[0] for _ in range(count - 1)))
            else:
                continue  # the stage is not adjacent to a stage of this rank
            x = handed if len(handed) > 1 else handed[0]
        return tensors_of(x)[0]  # on ranks other than 0 this is an intermediate result, which nothing reads

    def _hand_on(self, tensor: torch.Tensor, count: int, there: int) -> None:
        """Sends one of `count` tensors."""
        # If a stage ends within a pair of tensor-parallel layers, it hands on a shard, whose shape only the sender knows.
        header = [count, tensor.ndim, *tensor.shape, *[0] * (_MOST_DIMS - tensor.ndim)]
        dist.send(torch.tensor(header, device=self.device), there)
        dist.send(tensor, there)

    def _take(self, here: int) -> tuple[torch.Tensor, int]:
        """Receives one of several tensors, and returns it with their number."""
        header = torch.empty(_MOST_DIMS + 2, dtype=torch.int64, device=self.device)
        dist.recv(header, here)
        count, num_dims, *shape = header.tolist()
        received = torch.empty(shape[:num_dims], dtype=self.dtype, device=self.device)
        dist.recv(received, here)
        return received, count

    def gather(self, own: TrainState) -> TrainState:
        """Gathers the parameters and optimizer state of all ranks on rank 0."""
        return merge(gather_states(own if self.reports else None, self.device) or [own])

    def parts(
        self,
        run: Run,
        hardware: Hardware,
        forward_backward: Callable[[Inputs, torch.Tensor], torch.Tensor],
        measures: Callable[[], Mapping[str, float]],
    ) -> Parts:
        """Returns the parts of a program that trains this rank's stages.

        Args:
            run: The run.
            hardware: What the program runs on.
            forward_backward: Takes the inputs and targets of a micro-batch through all stages and back.
            measures: Returns the quantities that only this strategy has.
        """
        bare = nn.ModuleList(self.stages.values())
        models = [stage.model for stage in self.stages.values()]
        optimizer = build_optimizer(run.optimizer, bare.parameters(), matrices_of(run, *models))
        return Parts(
            bare=bare,
            hardware=hardware,
            context=self.context,
            model=self.predict,
            optimizer=optimizer,
            sums_losses=True,
            forward_backward=forward_backward,
            exchange=self.copies.exchange,
            global_norm=lambda own: norm_over_ranks(nn.utils.get_total_norm(self.copies.counted(own)) ** 2),
            local_state=build_local_state(run, optimizer, *models),
            gather=self.gather,
            measures=measures,
        )


def build_pipe(
    run: Run,
    device: torch.device,
    stage_ranks: Sequence[int],
    group: dist.ProcessGroup | None = None,
    reports: bool = True,
) -> Pipe:
    """Builds this rank's stages of a pipeline.

    Args:
        run: The run.
        device: The device of this process.
        stage_ranks: For each stage, the place along the pipeline that holds it.
        group: The ranks of the pipeline; None stands for all ranks.
        reports: See `Pipe`.
    """
    ranks, context = dist.get_process_group_ranks(group), StepContext(run.mesh.only_axis)
    stages = build_stages(run, device, context, stage_ranks, ranks.index(dist.get_rank()))
    holders = tuple(ranks[rank] for rank in stage_ranks)
    copies = SharedCopies(run, stages, context, holders, group)
    return Pipe(stages, context, holders, device, getattr(torch, run.dtype), copies, group, reports)


def scheduled_parts(run: Run[PipelineOptions], pipe: Pipe, hardware: Hardware) -> Parts:
    """Returns the parts of a program that runs micro-batches through a pipeline, under the schedule of the options.

    Args:
        run: The run.
        pipe: The pipeline as seen from this rank; several pipelines average their gradients.
        hardware: What the program runs on.
    """
    name, context, parts = run.options.schedule, pipe.context, own_part(run).count
    mean, timeline = mean_loss(run, context), Timeline(context.recorder)
    chunks = [PipelineStage(s, i, len(pipe.stage_ranks), pipe.device, group=pipe.group) for i, s in pipe.stages.items()]
    for chunk in chunks:
        timeline.watch(chunk)
        _number(chunk, context, run.options.microbatches)
        chunk.submod.eval()  # torch first runs a stage once more to find its shapes, which must not move running statistics
    schedule = get_schedule_class(name.replace("_", ""))(
        chunks if SCHEDULES[name].stages_per_rank > 1 else chunks[0],
        n_microbatches=run.options.microbatches,
        loss_fn=lambda logits, targets: full_tensor(mean(logits, targets)) * (parts * context.seed_gradient),
        scale_grads=False,  # the loss of a micro-batch has already been divided by the number of all targets
    )

    def forward_backward(x: Inputs, y: torch.Tensor) -> torch.Tensor:
        inputs = (x,) if pipe.has_first and isinstance(x, torch.Tensor) else ()
        several = x if pipe.has_first and isinstance(x, Mapping) else {}
        target, losses = (y, []) if pipe.has_last else (None, None)
        with timeline.step(), context.in_parts():
            schedule.step(*inputs, target=target, losses=losses, return_outputs=False, **several)
        factor = parts * context.seed_gradient
        return torch.stack(losses).sum() / factor if losses and pipe.reports else pipe.no_loss()

    return pipe.parts(run, hardware, forward_backward, timeline.measures)


def _number(stage: PipelineStage, context: StepContext, count: int) -> None:
    """Makes each pass of a stage see the examples of its own micro-batch, one of `count` in flight."""

    def numbered(compute: Callable[..., object]) -> Callable[..., object]:
        def of_part(number: int, *arguments: object, **options: object) -> object:
            if not stage.submod.training:
                stage.submod.train()
            with context.part(number, count):
                return compute(number, *arguments, **options)

        return of_part

    for method in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
        setattr(stage, method, numbered(getattr(stage, method)))
