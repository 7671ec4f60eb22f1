"""The part of a training state that one process holds: taken out, put back, and merged with the other parts."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch

from common.ledger import Footprint
from common.strategy import TrainState
from torch_impl import weights
from torch_impl.weights import Weight

SlotKeys = Mapping[str, str]
"""Neutral slot name -> torch's key, as in `SLOT_KEYS`."""


def taken(
    step: int,
    named: Mapping[str, Weight],
    optimizer: torch.optim.Optimizer,
    keys: SlotKeys,
    whole: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
) -> TrainState:
    """Parameters and slots as they are now.

    Args:
        step: How many steps have been taken.
        named: The parameters by neutral name.
        optimizer: Over them; it has taken a step or been restored.
        keys: Its slots.
        whole: A parameter or slot as one whole tensor.
    """
    params = {name: weight.to_neutral(whole(weight.parameter)) for name, weight in named.items()}
    slots = {
        slot: {name: w.to_neutral(whole(optimizer.state[w.parameter][key])) for name, w in named.items()}
        for slot, key in keys.items()
    }
    return TrainState(step, params, slots)


def put(
    state: TrainState,
    named: Mapping[str, Weight],
    optimizer: torch.optim.Optimizer,
    keys: SlotKeys,
    place: Callable[[torch.Tensor, torch.Tensor], object] = torch.Tensor.copy_,
) -> None:
    """The inverse, from a whole state; slots that torch makes at the first step are made now.

    Args:
        state: Of the whole model.
        named: The parameters that are here, by neutral name.
        optimizer: Over them.
        keys: Its slots.
        place: Copies a whole tensor into a parameter or slot, wherever its parts are.
    """
    with torch.no_grad():
        for name, weight in named.items():
            place(weight.parameter, weight.from_neutral(state.params[name]))
            held = optimizer.state[weight.parameter]
            for slot, key in keys.items():
                held[key] = torch.zeros_like(weight.parameter)
                place(held[key], weight.from_neutral(state.slots[slot][name]))
            held["step"] = torch.tensor(float(state.step))


def merged(parts: Iterable[TrainState]) -> TrainState:
    """One state out of parts that hold different parameters."""
    step, params = 0, {}
    slots: dict[str, dict[str, np.ndarray]] = {}
    for part in parts:
        step = part.step
        params |= part.params
        for slot, values in part.slots.items():
            slots.setdefault(slot, {}).update(values)
    return TrainState(step, params, slots)


def footprint(
    device: torch.device,
    parameters: Iterable[torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    keys: SlotKeys,
    gradients_bytes: int,
) -> Footprint:
    """The tensors of one process.

    Args:
        device: Where they are.
        parameters: Those that it holds.
        optimizer: Over them.
        keys: Its slots.
        gradients_bytes: Seen when the optimizer last started.
    """
    parameters = list(parameters)
    params = weights.nbytes(parameters)
    slots = weights.nbytes(optimizer.state[p].get(key) for p in parameters for key in keys.values())
    return Footprint(str(device), params, params, gradients_bytes, slots, "tensors")
