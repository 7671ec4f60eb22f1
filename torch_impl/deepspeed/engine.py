"""The state and the update of DeepSpeed's engine, which reduces gradients inside the backward pass and has its own step."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from deepspeed import DeepSpeedEngine, utils
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from samestep.common.ledger import Footprint
from samestep.common.program import StatePiece, TrainState, whole
from samestep.common.techniques import Techniques
from samestep.common.workload.optimizers.spec import Shape
from samestep.torch_impl.deepspeed.partitions import LAYOUTS, boxes
from samestep.torch_impl.local_state import LocalState
from samestep.torch_impl.step import norm_over_ranks
from samestep.torch_impl.techniques.applied import transform
from samestep.torch_impl.weights import Weight, dtype_names


def storages(tensors: Iterable[torch.Tensor]) -> dict[StorageWeakRef, int]:
    """Returns the storages behind tensors with their bytes; a storage counts once, even if several tensors are views of it."""
    untyped = (tensor.untyped_storage() for tensor in tensors)
    return {StorageWeakRef(storage): storage.nbytes() for storage in untyped}


LET_GO_SECONDS = 0.03
"""Seconds to wait because gloo's thread still holds a buffer after its exchange, longer on a busy machine (torch 2.13)."""


class PeakBytes(TorchDispatchMode):
    """A context that follows the memory of parameters and of the buffers in which they are gathered."""

    def __init__(self, alive: Callable[[], dict[StorageWeakRef, int]]) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._alive = alive
        self._buffers: dict[StorageWeakRef, int] = {}
        self._before: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Measures after every operator that torch dispatches."""
        result = func(*args, **(kwargs or {}))
        if func._schema.name == "c10d::_allgather_base_":
            self._buffers |= storages([args[0]])
            result[1].wait()
            time.sleep(LET_GO_SECONDS)
        self._buffers = {buffer: size for buffer, size in self._buffers.items() if not buffer.expired()}
        seen = {**self._buffers, **self._alive()}
        # New memory was allocated before old memory was freed, because a parameter is copied out of its buffer.
        self.peak_bytes = max(self.peak_bytes, sum({**self._before, **seen}.values()))
        self._before = seen
        return result


class EngineUpdate:
    """Takes the place of an optimizer, updates through the engine, and observes the gradients when its step begins."""

    def __init__(self, engine: DeepSpeedEngine, techniques: Techniques) -> None:
        self._engine = engine
        self._techniques = techniques
        self.gradients_bytes = 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of the engine's optimizer, with its learning rate."""
        return self._engine.optimizer.param_groups

    def zero_grad(self) -> None:
        """Drops the gradients."""
        self._engine.optimizer.zero_grad()

    def step(self) -> None:
        """Transforms the gradients as the techniques require, updates the masters, and gathers the parameters."""
        own = [gradient for group in self._engine.optimizer.averaged_gradients.values() for gradient in group]
        self.gradients_bytes = sum(storages(own).values())
        transform(own, _global_norm, self._techniques)  # the engine's clipping divides by a norm that is 1e-6 too large
        self._engine.step()


def _full_tensor(parameter: nn.Parameter) -> torch.Tensor:
    """Returns the whole parameter, from its master unless it is frozen, as a frozen parameter has no master."""
    return utils.safe_get_full_fp32_param(parameter) if parameter.requires_grad else parameter


def _global_norm(own: list[torch.Tensor]) -> torch.Tensor:
    return norm_over_ranks(nn.utils.get_total_norm(own) ** 2)


class EngineOptimizerState:
    """The optimizer state that the engine keeps for its masters; `EngineState.restore` fills it through the layout."""

    def local(self, parameter: nn.Parameter) -> None:
        """Returns None, because this rank's partitions are not shaped like parameters."""

    def full(self, parameter: nn.Parameter, key: str, shape: Shape) -> torch.Tensor:
        """Returns one state tensor, gathered from all ranks."""
        return utils.safe_get_full_optimizer_state(parameter, key)

    def count(self, parameter: nn.Parameter) -> int:
        """Returns 0, because the masters are updated together and have one count."""
        return 0


class EngineState:
    """What the engine keeps on this rank between two steps.

    Attributes:
        followed: The context in which a step is observed, whose peak the footprint reports.
    """

    def __init__(
        self,
        named: Mapping[str, Weight],
        keys: Mapping[str, str],
        engine: DeepSpeedEngine,
        update: EngineUpdate,
        buffers: Mapping[str, torch.Tensor],
    ) -> None:
        """Creates the optimizer state that the engine's optimizer would create in the first step.

        Args:
            named: The parameters by neutral name.
            keys: The keys of the optimizer state: neutral name -> torch's key.
            engine: The engine, just initialized.
            update: The update, which measures the bytes of the gradients.
            buffers: The model's buffers by neutral name.
        """
        self._full = LocalState(named, EngineOptimizerState(), keys, buffers, _full_tensor)
        self._named, self._keys, self._update, self._buffers = named, keys, update, buffers
        self._layout = LAYOUTS[engine.zero_optimization_stage()](engine)
        self._states = engine.optimizer.optimizer.state
        for master in self._layout.masters:
            self._states[master] |= {key: torch.zeros_like(master) for key in keys.values()}
        self._layout.link(self._states)
        self._set_step_count(0)
        self.followed = PeakBytes(self._alive)

    def snapshot(self, step: int) -> TrainState:
        """Returns copies of the buffers and of the masters and their optimizer state, gathered from all ranks."""
        return self._full.snapshot(step)

    def pieces(self) -> list[StatePiece]:
        """Returns this rank's partitions of masters and optimizer state, cut into boxes, and what is whole on every rank."""
        found = [whole(f"buffers/{name}", buffer.detach().cpu().numpy()) for name, buffer in self._buffers.items()]
        for name, weight in self._named.items():
            if name not in self._full.trained:
                found.append(weight.piece(f"params/{name}", weight.parameter))
                continue
            found += self._cut(f"params/{name}", weight)
            for slot, key in self._keys.items():
                found += self._cut(f"slots/{slot}/{name}", weight, key)
        return found

    def _cut(self, path: str, weight: Weight, key: str | None = None) -> Iterator[StatePiece]:
        """Yields the boxes of this rank's stretch of a parameter or its optimizer state, in the neutral layout."""
        start, own = self._layout.stretch(weight.parameter, key)
        shape = tuple(getattr(weight.parameter, "ds_shape", weight.parameter.shape))  # ZeRO 3 leaves a parameter empty
        flat, permutation, done = own.detach().cpu().numpy(), weight.permutation, 0
        for offset, sizes in boxes(shape, start, start + len(flat)):
            box = flat[done : (done := done + math.prod(sizes))].reshape(sizes)
            at, of = (tuple(values[dim] for dim in permutation) for values in (offset, shape))
            yield StatePiece(path, at, of, box.transpose(permutation))

    def restore(self, state: TrainState) -> None:
        """Copies this rank's partitions of a state in place; nothing is sent."""
        self._set_step_count(state.updates)
        with torch.no_grad():
            for name, weight in self._named.items():
                value = weight.from_neutral(state.params[name])
                if name not in self._full.trained:
                    weight.parameter.copy_(value)
                    continue
                self._layout.write(weight.parameter, value)
                for slot, key in self._keys.items():
                    self._layout.write(weight.parameter, weight.from_neutral(state.slots[slot][name]), key)
            self._full.restore_buffers(state)

    def _set_step_count(self, steps: int) -> None:
        """Sets the step count from which AdamW computes its bias correction."""
        for master in self._layout.masters:
            self._states[master]["step"] = torch.tensor(float(steps))

    def _alive(self) -> dict[StorageWeakRef, int]:
        local = (tensor for weight in self._named.values() for tensor in self._layout.tensors(weight.parameter))
        return storages([*local, *self._layout.masters])

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int) -> Footprint:
        """Returns the bytes of the tensors of this process; masters count as parameters, of which they are a second copy.

        Args:
            device: The device of the tensors.
            gradients_bytes: Ignored, because the engine's own gradients count, not those that torch sees.
            gathered_bytes: Ignored, because the peak of `followed` counts.
        """
        states = [self._states[master][key] for master in self._layout.masters for key in self._keys.values()]
        return Footprint(
            device=str(device),
            params_bytes=sum(self._alive().values()),
            params_peak_bytes=self.followed.peak_bytes,
            gradients_bytes=self._update.gradients_bytes,
            optimizer_bytes=sum(storages(states).values()),
            source="tensors",
            optimizer_dtype=dtype_names(states),
        )
