"""What DeepSpeed's engine keeps of a model on this rank, read and written whole; and the program around the engine.

The engine flattens the parameters and gives each rank a stretch of them to update: its *masters*, for which the client's
optimizer has its slots. It reduces the gradients inside the backward pass, and updates in a step of its own.

References:
    deepspeed.utils.safe_get_full_fp32_param and its siblings, of DeepSpeed 0.19.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine, utils
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from common.batch import Batch
from common.ledger import Exchange, Footprint
from common.strategy import TrainState
from torch_impl.exchanges import CountExchanges
from torch_impl.program import TrainingProgram
from torch_impl.weights import Weight


class Kept(Protocol):
    """How a stage keeps what it keeps between two steps."""

    masters: list[torch.Tensor]

    def tensors(self, parameter: nn.Parameter) -> tuple[torch.Tensor, ...]:
        """Where this rank has values of a parameter, besides the masters."""

    def link(self, slots: Mapping[torch.Tensor, dict[str, torch.Tensor]]) -> None:
        """Tells the parameters where their slots are, as the engine does after its first step."""

    def write(self, parameter: nn.Parameter, value: torch.Tensor, key: str | None = None) -> None:
        """Sets this rank's stretch of a parameter, or of its slot `key`, from the whole of it."""


class Whole:
    """Stages 1 and 2: the parameters are whole on every rank."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self.masters: list[torch.Tensor] = engine.optimizer.single_partition_of_fp32_groups
        self._groups: list[list[nn.Parameter]] = engine.optimizer.bit16_groups

    def tensors(self, parameter: nn.Parameter) -> tuple[torch.Tensor, ...]:
        """The parameter itself."""
        return (parameter,)

    def link(self, slots: Mapping[torch.Tensor, dict[str, torch.Tensor]]) -> None:
        """Group by group."""
        for parameters, master in zip(self._groups, self.masters, strict=True):
            utils.lazy_init_hp_params_optimizer_state(parameters, master, slots)

    def write(self, parameter: nn.Parameter, value: torch.Tensor, key: str | None = None) -> None:
        """The stretch of the master or slot; of a parameter all of it, too."""
        if key is None:
            parameter.copy_(value)
            utils.safe_set_full_fp32_param(parameter, value)
        else:
            utils.safe_set_full_optimizer_state(parameter, value, key)


class InParts:
    """Stage 3: each parameter is cut into equal parts, the last one padded; it is empty while it is not gathered."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self.masters: list[torch.Tensor] = engine.optimizer.fp32_partitioned_groups_flat

    def tensors(self, parameter: nn.Parameter) -> tuple[torch.Tensor, ...]:
        """The parameter, and this rank's part of it."""
        return parameter, parameter.ds_tensor

    def link(self, slots: Mapping[torch.Tensor, dict[str, torch.Tensor]]) -> None:
        """Stage 3 looks them up."""

    def write(self, parameter: nn.Parameter, value: torch.Tensor, key: str | None = None) -> None:
        """The part, padded (in DeepSpeed 0.19 safe_set_full_* fails where a parameter does not cut evenly)."""
        size = parameter.ds_tensor.numel()
        own = value.flatten()[dist.get_rank() * size :][:size]
        part = nn.functional.pad(own, (0, size - own.numel()))
        if key is None:
            parameter.ds_tensor.copy_(part)
            utils.safe_set_local_fp32_param(parameter, part)
        else:
            utils.safe_set_local_optimizer_state(parameter, part, key)


KEPT: Mapping[int, Callable[[DeepSpeedEngine], Kept]] = {1: Whole, 2: Whole, 3: InParts}


def storages(tensors: Iterable[torch.Tensor]) -> dict[StorageWeakRef, int]:
    """The bytes behind tensors, each piece of memory once however many of them are views of it."""
    untyped = (tensor.untyped_storage() for tensor in tensors)
    return {StorageWeakRef(storage): storage.nbytes() for storage in untyped}


class PeakBytes(TorchDispatchMode):
    """Within it, the memory of parameters is followed, and that of the buffers in which they are gathered."""

    def __init__(self, alive: Callable[[], dict[StorageWeakRef, int]]) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._alive = alive
        self._buffers: dict[StorageWeakRef, int] = {}
        self._before: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Looks after every operator that torch dispatches."""
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
    """The engine in the place of an optimizer, which sees the gradients that are there when its step begins."""

    def __init__(self, engine: DeepSpeedEngine, clip_norm: float | None) -> None:
        self._engine = engine
        self._clip_norm = clip_norm
        self.gradients_bytes = 0

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        self._engine.optimizer.zero_grad()

    def step(self) -> None:
        """Clips, updates the masters, hands the parameters round."""
        own = [gradient for group in self._engine.optimizer.averaged_gradients.values() for gradient in group]
        self.gradients_bytes = sum(storages(own).values())
        if self._clip_norm is not None:  # the engine's own clipping divides by a norm that is 1e-6 too large
            squared = nn.utils.get_total_norm(own) ** 2
            dist.all_reduce(squared)
            torch._foreach_mul_(own, (self._clip_norm / squared.sqrt()).clamp(max=1.0))
        self._engine.step()


class EngineProgram:
    """The step is `TrainingProgram`'s; what is kept between two steps is the engine's."""

    def __init__(
        self,
        inner: TrainingProgram,
        engine: DeepSpeedEngine,
        update: EngineUpdate,
        named: Mapping[str, Weight],
        stage: int,
    ) -> None:
        """Around a program.

        Args:
            inner: Takes the steps.
            engine: Just initialized. Slots that the optimizer would make at its first step are made now.
            update: What `inner` has for an optimizer.
            named: The parameters by neutral name, from before the engine took them.
            stage: Of ZeRO.
        """
        self.device_note = inner.device_note
        self._inner, self._update, self._named, self._kept = inner, update, named, KEPT[stage](engine)
        self._parameters = [weight.parameter for weight in named.values()]
        self._slots = engine.optimizer.optimizer.state
        for master in self._kept.masters:
            self._slots[master] |= {key: torch.zeros_like(master) for key in inner.slot_keys.values()}
        self._kept.link(self._slots)
        self._step = self._peak_bytes = 0
        self._set_count(0)

    def step(self, batch: Batch) -> None:
        """One step of the engine."""
        self._inner.step(batch)
        self._step += 1

    def losses(self) -> list[float]:
        """The global losses since the last call."""
        return self._inner.losses()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits."""
        return self._inner.predict(inputs)

    def state(self) -> TrainState:
        """Masters and slots, gathered."""
        params = {}
        slots: dict[str, dict[str, np.ndarray]] = {slot: {} for slot in self._inner.slot_keys}
        for name, weight in self._named.items():
            params[name] = weight.to_neutral(utils.safe_get_full_fp32_param(weight.parameter))
            for slot, key in self._inner.slot_keys.items():
                slots[slot][name] = weight.to_neutral(utils.safe_get_full_optimizer_state(weight.parameter, key))
        return TrainState(self._step, params, slots)

    def restore(self, state: TrainState) -> None:
        """Every rank takes its stretch of everything, and nothing is sent."""
        self._step = state.step
        self._set_count(state.step)
        with torch.no_grad():
            for name, weight in self._named.items():
                self._kept.write(weight.parameter, weight.from_neutral(state.params[name]))
                for slot, key in self._inner.slot_keys.items():
                    self._kept.write(weight.parameter, weight.from_neutral(state.slots[slot][name]), key)

    def _set_count(self, steps: int) -> None:
        """What AdamW corrects its bias by."""
        for master in self._kept.masters:
            self._slots[master]["step"] = torch.tensor(float(steps))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step, its collectives counted and its parameters followed."""
        with CountExchanges() as counted, PeakBytes(self._alive) as followed:
            self.step(batch)
        self._peak_bytes = followed.peak_bytes
        return counted.exchanges()

    def _alive(self) -> dict[StorageWeakRef, int]:
        held = (tensor for parameter in self._parameters for tensor in self._kept.tensors(parameter))
        return storages([*held, *self._kept.masters])

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process; masters count as parameters, which they are once more."""
        device, at_rest = str(self._inner.parts.device), sum(self._alive().values())
        keys = self._inner.slot_keys.values()
        slots = sum(storages(self._slots[master][key] for master in self._kept.masters for key in keys).values())
        return (Footprint(device, at_rest, self._peak_bytes, self._update.gradients_bytes, slots, "tensors"),)

    def measures(self) -> Mapping[str, float]:
        """None of its own."""
        return self._inner.measures()

    def sync(self) -> None:
        """Waits for the device."""
        self._inner.sync()

    def close(self) -> None:
        """Leaves the group of processes."""
        self._inner.close()
