"""THE training step, in PyTorch, on one replica. A strategy hands it the parts in which it differs."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from samestep.common.batch import Batch
from samestep.common.ledger import Exchange, Footprint
from samestep.common.program import Hardware, TrainState
from samestep.common.strategy import Run
from samestep.common.workload.initial import init
from samestep.torch_impl import devices, weights
from samestep.torch_impl.exchanges import CountExchanges
from samestep.torch_impl.local_state import LocalState
from samestep.torch_impl.models import build_model
from samestep.torch_impl.optimizer_state import LocalOptimizerState, OptimizerState
from samestep.torch_impl.optimizers import SLOT_KEYS
from samestep.torch_impl.step import Loss, accumulate, mean_loss, transform


def build_fresh_model(run: Run, device: torch.device) -> nn.Module:
    """Builds the workload's model with its initial weights, in the run's dtype."""
    model = build_model(run.workload.model).to(device, getattr(torch, run.dtype))
    weights.load(model, init(run.workload.model, run.seed))
    return model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Where strategies differ.

    Attributes:
        model: The model as the strategy wrapped it.
        bare: The model itself, whose modules have their own paths.
        optimizer: Over the wrapped model's parameters.
        device: Of this process.
        hardware: What the program runs on.
        shard: Which contiguous shard of the global batch this process takes, of how many. If there are more than one,
            every rank takes one, and the losses of all ranks are summed.
        gradient_averaging_factor: Over how many replicas the wrapper averages the gradients. The loss is multiplied by
            it, since the step wants their sum.
        exchange: Makes the context of each micro-batch's forward and backward pass, given whether it is the last; sums
            the gradients.
        take_exchanges: Returns what was exchanged since the last call beyond collectives, which are counted anyway.
        global_norm: The norm of the whole gradient, after the exchange.
        loss: (logits, targets) -> the loss summed over every target; the model's own, unless logits are sharded.
        full_tensor: Gathers a parameter, or its optimizer state, as one whole tensor.
        copy_shard: Copies this rank's part of a whole tensor into a parameter or its optimizer state.
        optimizer_state: Where the optimizer state is, if not simply in the optimizer.
        replicas: One row for each further device that this process drives.
        measures: The strategy's own quantities.
    """

    model: nn.Module
    bare: nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device
    hardware: Hardware
    shard: tuple[int, int] = (0, 1)
    gradient_averaging_factor: int = 1
    exchange: Callable[[bool], contextlib.AbstractContextManager[None]] = lambda last: contextlib.nullcontext()
    take_exchanges: Callable[[], tuple[Exchange, ...]] = tuple
    global_norm: Callable[[list[torch.Tensor]], torch.Tensor] = nn.utils.get_total_norm
    loss: Loss | None = None
    full_tensor: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    copy_shard: Callable[[torch.Tensor, torch.Tensor], object] = torch.Tensor.copy_
    optimizer_state: OptimizerState | None = None
    replicas: Callable[[], tuple[Footprint, ...]] = tuple
    measures: Callable[[], Mapping[str, float]] = dict


class TrainingProgram:
    """A replica in training."""

    def __init__(self, run: Run, parts: Parts) -> None:
        self.run, self.parts, self.hardware = run, parts, parts.hardware
        self.loss = mean_loss(run, parts.loss)
        self.local_state = LocalState(
            named=weights.named_weights(parts.bare),
            optimizer_state=parts.optimizer_state or LocalOptimizerState(parts.optimizer, parts.full_tensor),
            keys=SLOT_KEYS[run.optimizer.name],
            full_tensor=parts.full_tensor,
            copy_shard=parts.copy_shard,
        )
        self._step = 0
        self._losses: list[torch.Tensor] = []
        self._gradients_bytes = self._gathered_bytes = 0

    def step(self, batch: Batch) -> None:
        """Takes every micro-batch forward and backward, exchanges on the last, clips, updates."""
        self._losses.append(self.gradients(batch))
        self.apply()

    def gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulates the gradient of the global mean loss; returns this replica's part of the loss, on its device."""
        self.parts.optimizer.zero_grad()
        loss = accumulate(self.run.accumulation_steps, batch, self.parts.shard, self._forward_backward)
        assert loss is not None, "every micro-batch of a replica has a loss"
        return loss

    def _forward_backward(self, inputs: np.ndarray, targets: np.ndarray, last: bool) -> torch.Tensor:
        parts, factor = self.parts, self.parts.gradient_averaging_factor
        x, y = (torch.from_numpy(array).to(parts.device, non_blocking=True) for array in (inputs, targets))
        with parts.exchange(last):
            loss = self.loss(parts.model(x), y)
            (loss * factor if factor > 1 else loss).backward()
        return loss

    def apply(self) -> None:
        """Transforms the gradients as the techniques ask, then updates every parameter."""
        gradients = [p.grad for p in self.parts.bare.parameters() if p.grad is not None]
        transform(gradients, self.parts.global_norm, self.run.techniques)
        self.parts.optimizer.step()
        self._step += 1

    def losses(self) -> list[float]:
        """The global losses since the last call: one sum over all ranks."""
        taken, self._losses = self._losses, []
        if not taken:
            return []
        stacked = torch.stack(taken)
        if self.parts.shard[1] > 1:
            dist.all_reduce(stacked)
        return stacked.tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Computes logits."""
        with torch.no_grad():
            return self.parts.model(torch.from_numpy(inputs).to(self.parts.device)).cpu().numpy()

    def state(self) -> TrainState:
        """Gathers parameters and optimizer state."""
        return self.local_state.snapshot(self._step)

    def restore(self, state: TrainState) -> None:
        """Copies everything in place, as `LocalState.restore` does."""
        self._step = state.step
        self.local_state.restore(state)

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """Takes one more step; its collectives are counted as they are dispatched."""
        self.parts.take_exchanges()
        with CountExchanges(self.parts.bare) as counted:
            self._losses.append(self.gradients(batch))
            self._gradients_bytes = weights.nbytes(p.grad for p in self.parts.bare.parameters())
            self.apply()
        self._gathered_bytes = counted.gathered.peak_bytes
        return counted.exchanges() + self.parts.take_exchanges()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process."""
        own = self.local_state.footprint(self.parts.device, self._gradients_bytes, self._gathered_bytes)
        return (own, *self.parts.replicas())

    def measures(self) -> Mapping[str, float]:
        """The strategy's own."""
        return self.parts.measures()

    def sync(self) -> None:
        """Waits for the device."""
        devices.synchronize(self.parts.device)

    def close(self) -> None:
        """Leaves the group of processes."""
        devices.leave_group()
