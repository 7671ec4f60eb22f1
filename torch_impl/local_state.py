"""The part of a training state that one process holds: snapshot, restored, measured, and merged with the other parts."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import torch

from samestep.common.ledger import Footprint
from samestep.common.program import Arrays, TrainState
from samestep.torch_impl import weights
from samestep.torch_impl.optimizer_state import OptimizerState
from samestep.torch_impl.weights import Weight

SlotKeys = Mapping[str, str]
"""Neutral name of an optimizer state -> torch's key, as in `SLOT_KEYS`."""


@dataclasses.dataclass(frozen=True)
class LocalState:
    """The part of a training state that this process holds.

    Attributes:
        named: The parameters by neutral name.
        optimizer_state: Of the same parameters.
        keys: What the optimizer keeps for each of them.
        full_tensor: Gathers a parameter as one whole tensor.
        copy_shard: Copies this process's part of a whole tensor into a parameter or its optimizer state.
    """

    named: Mapping[str, Weight]
    optimizer_state: OptimizerState
    keys: SlotKeys
    full_tensor: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    copy_shard: Callable[[torch.Tensor, torch.Tensor], object] = torch.Tensor.copy_

    def snapshot(self, step: int) -> TrainState:
        """Copies parameters and optimizer state, gathered; the optimizer has taken a step or been restored."""
        params: Arrays = {}
        slots: dict[str, Arrays] = {slot: {} for slot in self.keys}
        for name, weight in self.named.items():
            params[name] = weight.to_neutral(self.full_tensor(weight.parameter))
            for slot, key in self.keys.items():
                slots[slot][name] = weight.to_neutral(self.optimizer_state.full(weight.parameter, key))
        return TrainState(step, params, slots)

    def restore(self, state: TrainState) -> None:
        """Copies everything in place; optimizer state that torch makes at its first step is made now."""
        with torch.no_grad():
            for name, weight in self.named.items():
                self.copy_shard(weight.parameter, weight.from_neutral(state.params[name]))
                local = self.optimizer_state.local(weight.parameter)
                if local is not None:
                    for slot, key in self.keys.items():
                        local[key] = torch.zeros_like(weight.parameter)
                        self.copy_shard(local[key], weight.from_neutral(state.slots[slot][name]))
                    local["step"] = torch.tensor(float(state.step))

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int = 0) -> Footprint:
        """Adds up the tensors of this process.

        Args:
            device: Where they are.
            gradients_bytes: Seen when the optimizer last started.
            gathered_bytes: The most parameter bytes that a step held beside this process's own.
        """
        parameters = [weight.parameter for weight in self.named.values()]
        local = [self.optimizer_state.local(parameter) or {} for parameter in parameters]
        params_bytes = weights.nbytes(parameters)
        return Footprint(
            device=str(device),
            params_bytes=params_bytes,
            params_peak_bytes=params_bytes + gathered_bytes,
            gradients_bytes=gradients_bytes,
            optimizer_bytes=weights.nbytes(held.get(key) for held in local for key in self.keys.values()),
            source="tensors",
        )


def merge(parts: Iterable[TrainState]) -> TrainState:
    """Makes one state of parts that hold different parameters."""
    step, params = 0, {}
    slots: dict[str, Arrays] = {}
    for part in parts:
        step = part.step
        params |= part.params
        for slot, values in part.slots.items():
            slots.setdefault(slot, {}).update(values)
    return TrainState(step, params, slots)
