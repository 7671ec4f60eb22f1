"""THE training step, in PyTorch, on one replica. A strategy hands it the parts in which it differs."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from common.batch import Batch
from common.config import RunConfig
from common.ledger import Exchange, Footprint
from common.strategy import TrainState
from common.workload.models.spec import init
from common.workload.table import Workload
from torch_impl import devices, weights
from torch_impl.exchanges import CountExchanges
from torch_impl.models import build_model
from torch_impl.models.losses import LOSSES
from torch_impl.optimizers import SLOT_KEYS
from torch_impl.sharded import own_part
from torch_impl.slots import HeldSlots, Slots


def fresh_model(workload: Workload, config: RunConfig, device: torch.device) -> nn.Module:
    """The workload's model with its initial weights, in the run's dtype."""
    model = build_model(workload.model).to(device, getattr(torch, config.dtype))
    weights.load(model, init(workload.model, config.seed))
    return model


def _no_measures() -> Mapping[str, float]:
    return {}


@dataclasses.dataclass(frozen=True)
class Parts:
    """Where strategies differ.

    Attributes:
        model: The model as the strategy wrapped it.
        bare: The model itself, whose modules have their own paths.
        optimizer: Over the wrapped model's parameters.
        device: Of this process.
        shard: Which contiguous shard of the global batch this process takes, of how many.
        averaged_over: Over how many replicas the wrapper averages the gradients; the loss is multiplied by it, since
            the step wants their sum.
        exchange: Entered around the backward pass of each micro-batch, told whether it is the last; sums the gradients.
        exchanged: What was exchanged since the last call, beyond collectives, which are counted anyway.
        global_norm: The norm of the whole gradient, after the exchange.
        loss: (logits, targets) -> the loss summed over every target; the model's own, unless logits lie in parts.
        sum_losses: Sums a tensor of losses over all replicas, in place.
        whole: A parameter or slot as one whole tensor, gathered from wherever its parts are.
        place: Copies a whole tensor into a parameter or slot, wherever its parts are.
        slots: Where the optimizer's slots are, if not simply in the optimizer.
        replicas: One row for each further device that this process drives.
        measures: The strategy's own quantities.
        device_note: What its devices really are, in words.
    """

    model: nn.Module
    bare: nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device
    shard: tuple[int, int] = (0, 1)
    averaged_over: int = 1
    exchange: Callable[[bool], contextlib.AbstractContextManager[None]] = lambda last: contextlib.nullcontext()
    exchanged: Callable[[], tuple[Exchange, ...]] = tuple
    global_norm: Callable[[list[torch.Tensor]], torch.Tensor] = nn.utils.get_total_norm
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    sum_losses: Callable[[torch.Tensor], None] = lambda losses: None
    whole: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    place: Callable[[torch.Tensor, torch.Tensor], object] = torch.Tensor.copy_
    slots: Slots | None = None
    replicas: Callable[[], tuple[Footprint, ...]] = tuple
    measures: Callable[[], Mapping[str, float]] = _no_measures
    device_note: str = ""


class TrainingProgram:
    """A replica in training."""

    def __init__(self, workload: Workload, config: RunConfig, parts: Parts) -> None:
        self.parts = parts
        self.device_note = parts.device_note or devices.describe(parts.device)
        self.loss = parts.loss or LOSSES[workload.model.loss]
        self.slot_keys = SLOT_KEYS[workload.optimizer(config).name]
        self.slots = parts.slots or HeldSlots(parts.optimizer, parts.whole)
        self.micro_batches = config.techniques.micro_batches
        self.clip_norm = config.techniques.clip_norm
        self._step = 0
        self._losses: list[torch.Tensor] = []
        self._gradients_bytes = self._gathered_bytes = 0

    def step(self, batch: Batch) -> None:
        """Forward and backward on each micro-batch, exchange on the last, global norm, update."""
        self._losses.append(self.gradients(batch))
        self.apply()

    def gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulates the gradient of the global mean loss; returns this replica's part of the loss, on its device."""
        parts, (index, count) = self.parts, self.parts.shard
        parts.optimizer.zero_grad()
        losses = []
        for micro in range(self.micro_batches):
            inputs, targets = batch.rows(index * self.micro_batches + micro, count * self.micro_batches)
            x, y = (torch.from_numpy(array).to(parts.device, non_blocking=True) for array in (inputs, targets))
            with parts.exchange(micro == self.micro_batches - 1):
                # Equal shards: the global number of targets follows from this one's.
                loss = self.loss(parts.model(x), y) / (y.numel() * count * self.micro_batches)
                (loss * parts.averaged_over if parts.averaged_over > 1 else loss).backward()
            losses.append(loss.detach())
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def apply(self) -> None:
        """Clips by the global norm, then updates every parameter."""
        if self.clip_norm is not None:
            gradients = [p.grad for p in self.parts.bare.parameters() if p.grad is not None]
            norm = self.parts.global_norm(gradients)
            torch._foreach_mul_([own_part(g) for g in gradients], (self.clip_norm / norm).clamp(max=1.0))
        self.parts.optimizer.step()
        self._step += 1

    def losses(self) -> list[float]:
        """The global losses since the last call: one sum over all replicas."""
        taken, self._losses = self._losses, []
        if not taken:
            return []
        stacked = torch.stack(taken)
        self.parts.sum_losses(stacked)
        return stacked.tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits."""
        with torch.no_grad():
            return self.parts.model(torch.from_numpy(inputs).to(self.parts.device)).cpu().numpy()

    def state(self) -> TrainState:
        """Parameters and slots, gathered."""
        params = {}
        slots: dict[str, dict[str, np.ndarray]] = {slot: {} for slot in self.slot_keys}
        for name, weight in weights.named_weights(self.parts.bare).items():
            params[name] = weight.to_neutral(self.parts.whole(weight.parameter))
            for slot, key in self.slot_keys.items():
                slots[slot][name] = weight.to_neutral(self.slots.whole(weight.parameter, key))
        return TrainState(self._step, params, slots)

    def restore(self, state: TrainState) -> None:
        """Copies everything in place; slots that torch makes at the first step are made now."""
        self._step = state.step
        with torch.no_grad():
            for name, weight in weights.named_weights(self.parts.bare).items():
                self.parts.place(weight.parameter, weight.from_neutral(state.params[name]))
                held = self.slots.held(weight.parameter)
                if held is not None:
                    for slot, key in self.slot_keys.items():
                        held[key] = torch.zeros_like(weight.parameter)
                        self.parts.place(held[key], weight.from_neutral(state.slots[slot][name]))
                    held["step"] = torch.tensor(float(state.step))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step, its collectives counted as they are dispatched."""
        self.parts.exchanged()
        with CountExchanges(self.parts.bare) as counted:
            self._losses.append(self.gradients(batch))
            self._gradients_bytes = weights.nbytes(p.grad for p in self.parts.bare.parameters())
            self.apply()
        self._gathered_bytes = counted.gathered.peak_bytes
        return counted.exchanges() + self.parts.exchanged()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process."""
        parameters = list(self.parts.bare.parameters())
        params = weights.nbytes(parameters)
        held = [self.slots.held(p) or {} for p in parameters]
        slots = weights.nbytes(own.get(key) for own in held for key in self.slot_keys.values())
        peak = params + self._gathered_bytes
        own = Footprint(str(self.parts.device), params, peak, self._gradients_bytes, slots, "tensors")
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
