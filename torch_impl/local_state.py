"""Copies, restores and measures the part of a training state that one process holds, and merges the parts of all processes."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from samestep.common.ledger import Footprint
from samestep.common.program import Arrays, StatePiece, TrainState, whole
from samestep.common.runtime.state_file import from_bytes, to_bytes
from samestep.common.strategy import Run
from samestep.common.workload.optimizers.spec import Shape
from samestep.torch_impl import sharded, weights
from samestep.torch_impl.optimizers import particular_slots, slot_keys
from samestep.torch_impl.optimizers.state import LocalOptimizerState, OptimizerState
from samestep.torch_impl.weights import Weight


class HeldState(Protocol):
    """What this process holds between two steps: a `LocalState`, unless an engine has its own layout."""

    def snapshot(self, step: int) -> TrainState:
        """Returns a copy of parameters and optimizer state, gathered from all ranks."""

    def pieces(self) -> list[StatePiece] | None:
        """Returns the parts of the state that this process holds, without gathering; None if they are not known."""

    def restore(self, state: TrainState) -> None:
        """Copies this process's part of a state in place."""

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int) -> Footprint:
        """Returns the bytes of the tensors of this process, like `LocalState.footprint`.

        Args:
            device: The device that the tensors are on.
            gradients_bytes: The bytes of the gradients when the optimizer last started.
            gathered_bytes: The most parameter bytes that a step gathered.
        """


@dataclasses.dataclass(frozen=True)
class LocalState:
    """The part of a training state that this process holds.

    Attributes:
        named: The parameters by neutral name.
        optimizer_state: The optimizer state of the same parameters.
        keys: Neutral name of each slot that the optimizer keeps for a parameter -> torch's key; see `slot_keys`.
        buffers: The model's buffers by neutral name.
        full_tensor: Returns a parameter as one whole, gathered tensor.
        counts: Whether updates may skip parameters, so that each parameter has its own count.
        particular: The slots of parameters for which the optimizer keeps other slots than usual; see `particular_slots`.
    """

    named: Mapping[str, Weight]
    optimizer_state: OptimizerState
    keys: Mapping[str, str]
    buffers: Mapping[str, torch.Tensor]
    full_tensor: Callable[[torch.Tensor], torch.Tensor] = sharded.full_tensor
    counts: bool = False
    particular: Mapping[str, Mapping[str, Shape]] = dataclasses.field(default_factory=dict)

    def _keys_of(self, name: str) -> dict[str, str]:
        """Returns the slots of a parameter, with their keys."""
        return {slot: key for slot, key in self.keys.items() if slot in self.particular.get(name, self.keys)}

    @property
    def trained(self) -> dict[str, Weight]:
        """The parameters that are not frozen; only these have gradients and optimizer state."""
        return {name: weight for name, weight in self.named.items() if weight.parameter.requires_grad}

    def snapshot(self, step: int) -> TrainState:
        """Returns a copy of parameters and optimizer state, gathered from all ranks."""
        params: Arrays = {}
        slots: dict[str, Arrays] = {slot: {} for slot in self.keys}
        for name, weight in self.named.items():
            params[name] = weight.to_neutral(self.full_tensor(weight.parameter))
        for name, weight in self.trained.items():
            with self._held(name, weight.parameter):
                for slot, key in self._keys_of(name).items():
                    slots[slot][name] = weight.to_neutral(
                        self.optimizer_state.full(weight.parameter, key, self._shape(name, slot))
                    )
        buffers = {name: buffer.detach().cpu().numpy().copy() for name, buffer in self.buffers.items()}
        counted = self.named.items() if self.counts else ()
        counts = {name: self.optimizer_state.count(weight.parameter) for name, weight in counted}
        return TrainState(step, params, slots, buffers, counts=counts)

    def pieces(self) -> list[StatePiece]:
        """Returns the parts of the state that this process holds."""
        found = [weight.piece(f"params/{name}", weight.parameter) for name, weight in self.named.items()]
        for name, weight in self.trained.items():
            with self._held(name, weight.parameter) as local:
                keys = self._keys_of(name).items() if local else ()
                found += [weight.piece(f"slots/{slot}/{name}", local[key]) for slot, key in keys]
        own = {f"buffers/{name}": buffer.detach().cpu().numpy() for name, buffer in self.buffers.items()}
        for name, weight in self.named.items() if self.counts else ():
            if (local := self.optimizer_state.local(weight.parameter)) is not None:
                own[f"counts/{name}"] = np.asarray(int(local.get("step", 0)))
        return found + [whole(path, array) for path, array in own.items()]

    def restore(self, state: TrainState) -> None:
        """Copies a whole state in place; each rank takes its part."""
        with torch.no_grad():
            for name, weight in self.named.items():
                sharded.copy_shard(weight.parameter, weight.from_neutral(state.params[name]))
            for name, weight in self.trained.items():
                with self._held(name, weight.parameter) as local:
                    for slot, key in self._keys_of(name).items() if local else ():
                        sharded.copy_shard(local[key], weight.from_neutral(state.slots[slot][name]))
                    if local:
                        local["step"] = torch.tensor(float(state.updates_of(name)))
            self.restore_buffers(state)

    @contextlib.contextmanager
    def _held(self, name: str, parameter: nn.Parameter) -> Iterator[dict[str, torch.Tensor]]:
        """Yields this process's optimizer state of a parameter; an empty dict if it holds none.

        torch creates the state in the first update, which may never come, as a loss scaler may skip it or there may be no
        gradient. State that is created here is kept only if there have been updates.
        """
        local = self.optimizer_state.local(parameter)
        is_made = local is not None and not local
        if local is not None and is_made:
            for slot, key in self._keys_of(name).items():
                shape = self._shape(name, slot)
                is_alike = shape == parameter.shape  # and sharded like it
                local[key] = torch.zeros_like(parameter) if is_alike else parameter.new_zeros(shape)
            local["step"] = torch.tensor(0.0)
        yield local or {}
        if local is not None and is_made and not local["step"]:
            local.clear()

    def _shape(self, name: str, slot: str) -> Shape:
        """Returns the shape of a slot of a parameter, in torch's layout."""
        weight, slots = self.named[name], self.particular.get(name)
        return weight.laid_out(slots[slot]) if slots else tuple(weight.parameter.shape)

    def restore_buffers(self, state: TrainState) -> None:
        """Copies the buffers in place."""
        for name, buffer in self.buffers.items():
            buffer.copy_(torch.from_numpy(state.buffers[name]))

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int = 0) -> Footprint:
        """Returns the bytes of the tensors of this process.

        Args:
            device: The device of the tensors.
            gradients_bytes: The bytes of the gradients when the optimizer last started.
            gathered_bytes: The most parameter bytes that a step held in addition to this process's own.
        """
        parameters = [weight.parameter for weight in self.named.values()]
        local = [self.optimizer_state.local(parameter) or {} for parameter in parameters]
        params_bytes = weights.nbytes(parameters)
        slots = [held.get(key) for held in local for key in self.keys.values()]
        return Footprint(
            device=str(device),
            params_bytes=params_bytes,
            params_peak_bytes=params_bytes + gathered_bytes,
            gradients_bytes=gradients_bytes,
            optimizer_bytes=weights.nbytes(slots),
            source="tensors",
            optimizer_dtype=weights.dtype_names(slots),
        )


def build_local_state(run: Run, optimizer: torch.optim.Optimizer, *models: nn.Module) -> LocalState:
    """Builds the local state of a process that holds parameters together with their optimizer state.

    Args:
        run: The run.
        optimizer: The optimizer of the models' parameters.
        *models: The models or stages of this process, without wrappers.
    """
    return LocalState(
        weights.named_weights(*models),
        LocalOptimizerState(optimizer),
        slot_keys(run.optimizer),
        weights.named_buffers(*models),
        counts=run.workload.model.facts.may_skip,
        particular=particular_slots(run),
    )


def gather_states(own: TrainState | None, device: torch.device) -> list[TrainState]:
    """Gathers states on rank 0, as arrays, because torch's own gather of objects unpickles.

    Args:
        own: The state of this rank; None if it contributes nothing.
        device: The device that the group sends from.

    Returns:
        The states in the order of ranks, on rank 0; an empty list on other ranks.
    """
    if dist.get_rank() > 0:
        data = bytearray(to_bytes(own) if own is not None else b"")
        dist.send(torch.tensor(len(data), device=device), 0)
        if data:
            dist.send(torch.frombuffer(data, dtype=torch.uint8).to(device), 0)
        return []
    gathered = [own]
    for rank in range(1, dist.get_world_size()):
        size = torch.tensor(0, device=device)
        dist.recv(size, rank)
        if size:
            received = torch.empty(int(size), dtype=torch.uint8, device=device)
            dist.recv(received, rank)
            gathered.append(from_bytes(received.cpu().numpy().tobytes()))
    return [state for state in gathered if state is not None]


def merge(parts: Iterable[TrainState]) -> TrainState:
    """Merges parts that hold different parameters into one state; not every part has the count of skipped steps."""
    step, skipped, params, counts = 0, 0, {}, {}
    slots: dict[str, Arrays] = {}
    buffers: Arrays = {}
    for part in parts:
        step, skipped = part.step, max(skipped, part.skipped)
        params |= part.params
        counts |= part.counts
        buffers = part.buffers | buffers  # if replicas differ, the first one counts
        for slot, values in part.slots.items():
            slots.setdefault(slot, {}).update(values)
    return TrainState(step, params, slots, buffers, skipped=skipped, counts=counts)
