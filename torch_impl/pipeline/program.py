"""The training step of a model that is split by layers: each rank holds stages, and rank 0 reports for all."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.distributed as dist

from samestep.common.batch import Batch
from samestep.common.ledger import Exchange, Footprint
from samestep.common.program import Hardware, TrainState
from samestep.common.strategy import Run
from samestep.torch_impl import devices, weights
from samestep.torch_impl.exchanges import CountExchanges
from samestep.torch_impl.local_state import LocalState, merge
from samestep.torch_impl.optimizer_state import LocalOptimizerState
from samestep.torch_impl.optimizers import SLOT_KEYS, build_optimizer
from samestep.torch_impl.pipeline.stages import Stage, named_weights
from samestep.torch_impl.step import accumulate, transform

PipelinePass = Callable[[torch.Tensor | None, torch.Tensor | None], torch.Tensor | None]
"""Inputs (None unless the rank holds the first stage) and targets (None unless it holds the last) -> the loss there."""
_MOST_DIMS = 8
"""Of activations: the header that holds their shape has one size."""


@dataclasses.dataclass(frozen=True)
class Pipe:
    """One pipeline, as seen from one of its ranks.

    Attributes:
        stages: What this rank holds, by index.
        stage_ranks: The global rank that holds each stage.
        device: Of this process.
    """

    stages: Mapping[int, Stage]
    stage_ranks: tuple[int, ...]
    device: torch.device

    @property
    def has_first(self) -> bool:
        """Whether this rank holds the first stage."""
        return 0 in self.stages

    @property
    def has_last(self) -> bool:
        """Whether this rank holds the last stage."""
        return len(self.stage_ranks) - 1 in self.stages


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineParts:
    """Where strategies that split layers differ.

    Attributes:
        pipe: The stages.
        hardware: What the program runs on.
        forward_backward: Takes one shard of the batch through all stages and back; gradients accumulate.
        measures: The strategy's own quantities.
        shard: Which contiguous shard of the global batch this pipeline takes, of how many.
        reports: Whether this rank's losses, norm and weights count: it is not a replica of another's.
        full_tensor: Gathers a parameter, its optimizer state or an activation as one whole tensor.
        copy_shard: Copies this rank's part of a whole tensor into a parameter or its optimizer state.
        squared_norm: Of this rank's gradients, each counted by one of the ranks that hold it.
    """

    pipe: Pipe
    hardware: Hardware
    forward_backward: PipelinePass
    measures: Callable[[], Mapping[str, float]]
    shard: tuple[int, int] = (0, 1)
    reports: bool = True
    full_tensor: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    copy_shard: Callable[[torch.Tensor, torch.Tensor], object] = torch.Tensor.copy_
    squared_norm: Callable[[list[torch.Tensor]], torch.Tensor] = lambda own: torch.nn.utils.get_total_norm(own) ** 2


class PipelineProgram:
    """A rank's stages in training."""

    def __init__(self, run: Run, parts: PipelineParts) -> None:
        self.parts = parts
        self.hardware = parts.hardware
        named = named_weights(parts.pipe.stages)
        self._parameters = [weight.parameter for weight in named.values()]
        self._optimizer = build_optimizer(run.optimizer, self._parameters)
        optimizer_state = LocalOptimizerState(self._optimizer, parts.full_tensor)
        keys = SLOT_KEYS[run.optimizer.name]
        self._local_state = LocalState(named, optimizer_state, keys, parts.full_tensor, parts.copy_shard)
        self._techniques = run.techniques
        self._dtype = getattr(torch, run.dtype)
        self._step = 0
        self._losses: list[torch.Tensor] = []
        self._gradients_bytes = self._gathered_bytes = 0

    def step(self, batch: Batch) -> None:
        """Forward and backward through all stages, global norm, update."""
        self._losses.append(self.gradients(batch))
        self.apply()

    def gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulates the gradient of the global mean loss; returns the loss on the last stage, zero elsewhere."""
        self._optimizer.zero_grad()
        loss = accumulate(self._techniques.accumulation_steps, batch, self.parts.shard, self._forward_backward)
        return torch.zeros((), device=self.parts.pipe.device, dtype=self._dtype) if loss is None else loss

    def _forward_backward(self, inputs: np.ndarray, targets: np.ndarray, last: bool) -> torch.Tensor | None:
        pipe = self.parts.pipe
        x = torch.from_numpy(inputs).to(pipe.device) if pipe.has_first else None
        y = torch.from_numpy(targets).to(pipe.device) if pipe.has_last else None
        return self.parts.forward_backward(x, y)

    def apply(self) -> None:
        """Transforms the gradients as the techniques ask, then updates every parameter."""
        transform([p.grad for p in self._parameters if p.grad is not None], self._global_norm, self._techniques)
        self._optimizer.step()
        self._step += 1

    def _global_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        squared = self.parts.squared_norm(gradients) * self.parts.reports
        dist.all_reduce(squared)
        return squared.sqrt()

    def losses(self) -> list[float]:
        """The global losses since the last call: the last stages have them, and one sum gives them to every rank."""
        taken, self._losses = self._losses, []
        if not taken:
            return []
        stacked = torch.stack(taken) * self.parts.reports
        dist.all_reduce(stacked)
        return stacked.tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits, stage by stage; the last stage sends them to rank 0."""
        pipe, rank = self.parts.pipe, dist.get_rank()
        x = torch.from_numpy(inputs).to(pipe.device)
        for index, (here, there) in enumerate(itertools.pairwise((*pipe.stage_ranks, pipe.stage_ranks[0]))):
            if rank == here:
                with torch.no_grad():
                    x = self.parts.full_tensor(pipe.stages[index](x))
                if there != here:
                    # A stage that ends within a pair of tensor-parallel layers hands on a shard: only it has the shape.
                    header = [x.ndim, *x.shape, *[0] * (_MOST_DIMS - x.ndim)]
                    dist.send(torch.tensor(header, device=pipe.device), there)
                    dist.send(x, there)
            elif rank == there:
                received = torch.empty(_MOST_DIMS + 1, dtype=torch.int64, device=pipe.device)
                dist.recv(received, here)
                count, *shape = received.tolist()
                x = torch.empty(shape[:count], dtype=self._dtype, device=pipe.device)
                dist.recv(x, here)
        return x.cpu().numpy()

    def state(self) -> TrainState:
        """Parameters and optimizer state, every rank's gathered on rank 0."""
        own = self._local_state.snapshot(self._step)
        gathered = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(own if self.parts.reports else None, gathered)
        return merge(part for part in gathered or [own] if part is not None)

    def restore(self, state: TrainState) -> None:
        """Copies this rank's part of everything in place."""
        self._step = state.step
        self._local_state.restore(state)

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """Takes one more step; its exchanges are counted as they are dispatched."""
        with CountExchanges(torch.nn.ModuleList(self.parts.pipe.stages.values())) as counted:
            self._losses.append(self.gradients(batch))
            self._gradients_bytes = weights.nbytes(p.grad for p in self._parameters)
            self.apply()
        self._gathered_bytes = counted.gathered.peak_bytes
        return counted.exchanges()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process."""
        return (self._local_state.footprint(self.parts.pipe.device, self._gradients_bytes, self._gathered_bytes),)

    def measures(self) -> Mapping[str, float]:
        """The strategy's own."""
        return self.parts.measures()

    def sync(self) -> None:
        """Waits for the device."""
        devices.synchronize(self.parts.pipe.device)

    def close(self) -> None:
        """Leaves the group of processes."""
        devices.leave_group()
