"""The training step where the model is split by layers: a rank holds stages, and rank 0 answers for all."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.distributed as dist

from common.batch import Batch
from common.config import RunConfig
from common.ledger import Exchange, Footprint
from common.strategy import TrainState
from common.workload.table import Workload
from torch_impl import devices, stage_state, weights
from torch_impl.exchanges import CountExchanges
from torch_impl.models.losses import LOSSES
from torch_impl.optimizers import SLOT_KEYS
from torch_impl.sharded import own_part
from torch_impl.stages import Stage, named_weights

ForwardBackward = Callable[[torch.Tensor | None, torch.Tensor | None], torch.Tensor | None]
"""Inputs (None unless the rank holds the first stage) and targets (None unless it holds the last) -> the loss there."""


_MOST_DIMS = 8
"""Of activations: the header that says their shape is of one size."""


@dataclasses.dataclass(frozen=True)
class Pipe:
    """One pipeline, as seen from one of its ranks.

    Attributes:
        stages: What this rank holds, by index.
        holders: The global rank that holds each stage.
        device: Of this process.
    """

    stages: Mapping[int, Stage]
    holders: tuple[int, ...]
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this rank holds the first stage."""
        return 0 in self.stages

    @property
    def last(self) -> bool:
        """Whether this rank holds the last stage."""
        return len(self.holders) - 1 in self.stages


@dataclasses.dataclass(frozen=True)
class PipelineParts:
    """Where strategies that split layers differ.

    Attributes:
        pipe: The stages.
        optimizer: Over the parameters of this rank's stages.
        forward_backward: Takes one shard of the batch through all stages and back; gradients accumulate.
        shard: Which contiguous shard of the global batch this pipeline takes, of how many.
        reports: Whether this rank's losses, norm and weights count: it is not a replica of another's.
        whole: A parameter or slot as one whole tensor.
        place: Copies a whole tensor into a parameter or slot, wherever its parts are.
        squared_norm: Of this rank's gradients, each counted by one of the ranks that hold it.
        measures: The strategy's own quantities.
    """

    pipe: Pipe
    optimizer: torch.optim.Optimizer
    forward_backward: ForwardBackward
    shard: tuple[int, int] = (0, 1)
    reports: bool = True
    whole: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    place: Callable[[torch.Tensor, torch.Tensor], object] = torch.Tensor.copy_
    squared_norm: Callable[[list[torch.Tensor]], torch.Tensor] = lambda own: torch.nn.utils.get_total_norm(own) ** 2
    measures: Callable[[], Mapping[str, float]] = dict


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def mean_loss(workload: Workload, config: RunConfig) -> Loss:
    """(logits, targets) of any part of a batch -> its share of the global mean loss."""
    loss = LOSSES[workload.model.loss]
    count = (config.batch_size or 0) * math.prod(workload.model.targets().shape)
    return lambda logits, targets: loss(logits, targets) / count


class PipelineProgram:
    """A rank's stages in training."""

    def __init__(self, workload: Workload, config: RunConfig, parts: PipelineParts) -> None:
        self.parts = parts
        self.device_note = "one process per device"
        self.slot_keys = SLOT_KEYS[workload.optimizer(config).name]
        self.micro_batches = config.techniques.micro_batches
        self.clip_norm = config.techniques.clip_norm
        self._dtype = getattr(torch, config.dtype)
        self._step = 0
        self._losses: list[torch.Tensor] = []
        self._gradients_bytes = self._gathered_bytes = 0

    def step(self, batch: Batch) -> None:
        """Forward and backward through all stages, global norm, update."""
        self._losses.append(self.gradients(batch))
        self.apply()

    def gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulates the gradient of the global mean loss; returns the loss on the last stage, zero elsewhere."""
        pipe, (index, count) = self.parts.pipe, self.parts.shard
        self.parts.optimizer.zero_grad()
        total = torch.zeros((), device=pipe.device, dtype=self._dtype)
        for micro in range(self.micro_batches):
            inputs, targets = batch.rows(index * self.micro_batches + micro, count * self.micro_batches)
            x = torch.from_numpy(inputs).to(pipe.device) if pipe.first else None
            y = torch.from_numpy(targets).to(pipe.device) if pipe.last else None
            loss = self.parts.forward_backward(x, y)
            if loss is not None:
                total = loss.detach() if self.micro_batches == 1 else total + loss.detach()
        return total

    def apply(self) -> None:
        """Clips by the global norm, then updates every parameter."""
        if self.clip_norm is not None:
            gradients = [p.grad for p in self._parameters() if p.grad is not None]
            squared = self.parts.squared_norm(gradients) * self.parts.reports
            dist.all_reduce(squared)
            torch._foreach_mul_([own_part(g) for g in gradients], (self.clip_norm / squared.sqrt()).clamp(max=1.0))
        self.parts.optimizer.step()
        self._step += 1

    def losses(self) -> list[float]:
        """The global losses since the last call: the last stages have them, every rank learns them."""
        taken, self._losses = self._losses, []
        if not taken:
            return []
        stacked = torch.stack(taken) * self.parts.reports
        dist.all_reduce(stacked)
        return stacked.tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits, stage by stage; the last one's go to rank 0."""
        pipe, rank = self.parts.pipe, dist.get_rank()
        x = torch.from_numpy(inputs).to(pipe.device)
        for index, (here, there) in enumerate(itertools.pairwise((*pipe.holders, pipe.holders[0]))):
            if rank == here:
                with torch.no_grad():
                    x = self.parts.whole(pipe.stages[index](x))
                if there != here:
                    dist.send(torch.tensor([x.ndim, *x.shape, *[0] * (_MOST_DIMS - x.ndim)]), there)
                    dist.send(x, there)
            elif rank == there:
                header = torch.empty(_MOST_DIMS + 1, dtype=torch.int64)
                dist.recv(header, here)
                count, *shape = header.tolist()
                x = torch.empty(shape[:count], dtype=self._dtype, device=pipe.device)
                dist.recv(x, here)
        return x.cpu().numpy()

    def state(self) -> TrainState:
        """Parameters and slots, every rank's gathered on rank 0."""
        named = named_weights(self.parts.pipe.stages)
        own = stage_state.taken(self._step, named, self.parts.optimizer, self.slot_keys, self.parts.whole)
        gathered = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(own if self.parts.reports else None, gathered)
        return stage_state.merged(part for part in gathered or [own] if part is not None)

    def restore(self, state: TrainState) -> None:
        """Each rank takes what it holds."""
        self._step = state.step
        named = named_weights(self.parts.pipe.stages)
        stage_state.put(state, named, self.parts.optimizer, self.slot_keys, self.parts.place)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [weight.parameter for weight in named_weights(self.parts.pipe.stages).values()]

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step, its exchanges counted as they are dispatched."""
        with CountExchanges(torch.nn.ModuleList(self.parts.pipe.stages.values())) as counted:
            self._losses.append(self.gradients(batch))
            self._gradients_bytes = weights.nbytes(p.grad for p in self._parameters())
            self.apply()
        self._gathered_bytes = counted.gathered.peak_bytes
        return counted.exchanges()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process."""
        parts, own = self.parts, self._parameters()
        held = stage_state.footprint(parts.pipe.device, own, parts.optimizer, self.slot_keys, self._gradients_bytes)
        return (dataclasses.replace(held, params_peak_bytes=held.params_bytes + self._gathered_bytes),)

    def measures(self) -> Mapping[str, float]:
        """The strategy's own."""
        return self.parts.measures()

    def sync(self) -> None:
        """Waits for the device."""
        devices.synchronize(self.parts.pipe.device)

    def close(self) -> None:
        """Leaves the group of processes."""
        devices.leave_group()
