"""The program around DeepSpeed's engine, which reduces the gradients inside the backward pass and updates in its own step."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from samestep.common.batch import Batch
from samestep.common.ledger import Exchange, Footprint
from samestep.common.program import TrainState
from samestep.common.request import Techniques
from samestep.torch_impl.deepspeed_layouts import PartitionLayout
from samestep.torch_impl.exchanges import CountExchanges
from samestep.torch_impl.program import TrainingProgram
from samestep.torch_impl.step import transform


def storages(tensors: Iterable[torch.Tensor]) -> dict[StorageWeakRef, int]:
    """The bytes behind tensors; each piece of memory counts once, however many of them are views of it."""
    untyped = (tensor.untyped_storage() for tensor in tensors)
    return {StorageWeakRef(storage): storage.nbytes() for storage in untyped}


class PeakBytes(TorchDispatchMode):
    """A context that follows the memory of parameters, and that of the buffers in which they are gathered."""

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
        self._buffers = {buffer: size for buffer, size in self._buffers.items() if not buffer.expired()}
        seen = {**self._buffers, **self._alive()}
        # What is new was made before what is gone went: a parameter is copied out of its buffer.
        self.peak_bytes = max(self.peak_bytes, sum({**self._before, **seen}.values()))
        self._before = seen
        return result


class EngineUpdate:
    """The engine in the place of an optimizer. It sees the gradients that are there when its step begins."""

    def __init__(self, engine: DeepSpeedEngine, techniques: Techniques) -> None:
        self._engine = engine
        self._techniques = techniques
        self.gradients_bytes = 0

    def zero_grad(self) -> None:
        """Drops the gradients."""
        self._engine.optimizer.zero_grad()

    def step(self) -> None:
        """Transforms the gradients as the techniques ask, updates the masters, gathers the parameters."""
        own = [gradient for group in self._engine.optimizer.averaged_gradients.values() for gradient in group]
        self.gradients_bytes = sum(storages(own).values())
        transform(own, _global_norm, self._techniques)  # the engine's clipping divides by a norm that is 1e-6 too large
        self._engine.step()


def _global_norm(own: list[torch.Tensor]) -> torch.Tensor:
    squared = nn.utils.get_total_norm(own) ** 2
    dist.all_reduce(squared)
    return squared.sqrt()


class EngineProgram:
    """The step is `TrainingProgram`'s; what is kept between two steps is the engine's."""

    def __init__(
        self, inner: TrainingProgram, engine: DeepSpeedEngine, update: EngineUpdate, layout: PartitionLayout
    ) -> None:
        """Wraps a program.

        Args:
            inner: Takes the steps; it was made with the three others.
            engine: Just initialized. Optimizer state that its optimizer would make at the first step is made now.
            update: In the place of the inner program's optimizer.
            layout: What this rank keeps.
        """
        self.hardware = inner.hardware
        self._inner, self._update, self._layout = inner, update, layout
        self._named, self._keys = inner.local_state.named, inner.local_state.keys
        self._states = engine.optimizer.optimizer.state
        for master in layout.masters:
            self._states[master] |= {key: torch.zeros_like(master) for key in self._keys.values()}
        layout.link(self._states)
        self._set_step_count(0)
        self._peak_bytes = 0

    def step(self, batch: Batch) -> None:
        """Takes one step of the engine."""
        self._inner.step(batch)

    def losses(self) -> list[float]:
        """The global losses since the last call."""
        return self._inner.losses()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits."""
        return self._inner.predict(inputs)

    def state(self) -> TrainState:
        """Masters and their optimizer state, gathered."""
        return self._inner.state()

    def restore(self, state: TrainState) -> None:
        """Copies this rank's stretch of everything in place; nothing is sent."""
        self._inner.restore(state)
        self._set_step_count(state.step)
        with torch.no_grad():
            for name, weight in self._named.items():
                for slot, key in self._keys.items():
                    self._layout.write(weight.parameter, weight.from_neutral(state.slots[slot][name]), key)

    def _set_step_count(self, steps: int) -> None:
        """Sets what AdamW corrects its bias by."""
        for master in self._layout.masters:
            self._states[master]["step"] = torch.tensor(float(steps))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """Takes one more step; its collectives are counted and its parameters' memory is followed."""
        with CountExchanges() as counted, PeakBytes(self._alive) as followed:
            self.step(batch)
        self._peak_bytes = followed.peak_bytes
        return counted.exchanges()

    def _alive(self) -> dict[StorageWeakRef, int]:
        local = (tensor for weight in self._named.values() for tensor in self._layout.tensors(weight.parameter))
        return storages([*local, *self._layout.masters])

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process; masters count as parameters, which they are once more."""
        states = (self._states[master][key] for master in self._layout.masters for key in self._keys.values())
        return (
            Footprint(
                device=str(self._inner.parts.device),
                params_bytes=sum(self._alive().values()),
                params_peak_bytes=self._peak_bytes,
                gradients_bytes=self._update.gradients_bytes,
                optimizer_bytes=sum(storages(states).values()),
                source="tensors",
            ),
        )

    def measures(self) -> Mapping[str, float]:
        """None of its own."""
        return self._inner.measures()

    def sync(self) -> None:
        """Waits for the device."""
        self._inner.sync()

    def close(self) -> None:
        """Leaves the group of processes."""
        self._inner.close()
