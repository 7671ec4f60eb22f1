"""States that other programs wrote: weights in a file, or a folder in torch's or TensorFlow's own format, read without either.

If there are only weights, a run begins with them at step 0. If there is an optimizer's state as well, it continues after the
number of steps that the state gives, or from step 0 if it gives none.
"""

import dataclasses
import os
import re
from pathlib import Path

import numpy as np

from samestep.common.features.used import initial_buffers
from samestep.common.files.dcp import METADATA, read_dcp
from samestep.common.files.reading import Unreadable
from samestep.common.files.safetensors import SUFFIX, read_safetensors
from samestep.common.files.tensor_bundle import LATEST, latest, read_tensor_bundle
from samestep.common.flags import MAX_STEPS
from samestep.common.program import Arrays, TrainState
from samestep.common.runtime.checkpoints.usual_names import from_usual, neutral_slot, usual_name
from samestep.common.strategy import Run
from samestep.common.workload.initial import empty_slots
from samestep.common.workload.models.parameters import trained

_SLOT = re.compile(r"optimizer\.state\.(?P<name>.+)\.(?P<key>[^.]+)")


@dataclasses.dataclass
class _Weights:
    """The arrays that another program wrote, sorted.

    Attributes:
        weights: Parameters and buffers, by neutral name.
        slots: The optimizer's state, as in a TrainState.
        updates: How many updates each parameter has taken, where that is stored.
        step: How many steps were taken; None if that is not stored.
    """

    weights: Arrays
    slots: dict[str, Arrays] = dataclasses.field(default_factory=dict)
    updates: dict[str, int] = dataclasses.field(default_factory=dict)
    step: int | None = None


def is_foreign(path: Path) -> bool:
    """Returns whether another program wrote a file or folder, judging by its name or contents."""
    # os.path: no error for a long path.
    return path.suffix == SUFFIX or any(os.path.isfile(path / name) for name in (METADATA, LATEST))


def read_foreign(run: Run, path: Path) -> TrainState:
    """Reads the state that another program wrote.

    Args:
        run: The run, whose model and optimizer it should fit.
        path: A file of weights, or a folder.

    Raises:
        Unreadable: The file or folder is damaged.
    """
    if path.suffix == SUFFIX:
        return _state(run, _Weights(_by_neutral_name(run, read_safetensors(path))))
    if (path / METADATA).is_file():
        return _state(run, _of_torch(run, read_dcp(path)))
    return _state(run, _of_tensorflow(read_tensor_bundle(latest(path))))


def _of_torch(run: Run, arrays: Arrays) -> _Weights:
    """Sorts arrays by the names that torch's modules and optimizers give them."""
    neutral = {usual_name(name): name for name in run.workload.model.params()}
    found = _Weights(_by_neutral_name(run, _below(arrays, "model.")), step=_count(arrays, "step"))
    for path, array in arrays.items():
        if matched := _SLOT.fullmatch(path):
            name = neutral.get(matched["name"], matched["name"])
            if matched["key"] == "step":
                found.updates[name] = _count(arrays, path) or 0
            elif slot := neutral_slot(matched["key"]):
                found.slots.setdefault(slot, {})[name] = from_usual(name, array)
    return found


def _of_tensorflow(arrays: Arrays) -> _Weights:
    """Sorts arrays that have neutral names."""
    found = _Weights(_below(arrays, "model/"), step=_count(arrays, "step"))
    for path, array in _below(arrays, "optimizer/").items():
        slot, _, name = path.partition("/")
        found.slots.setdefault(slot, {})[name] = array
    found.updates = {name: _count(arrays, f"updates/{name}") or 0 for name in _below(arrays, "updates/")}
    return found


def _below(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _by_neutral_name(run: Run, arrays: Arrays) -> Arrays:
    """Gives weights their neutral names and layouts; buffers have only one layout.

    Torch writes a weight that two modules share under both of its names. The model has it under one of them.
    """
    params = {usual_name(name): name for name in run.workload.model.params()}
    buffers = {name.replace("/", "."): name for name in initial_buffers(run.workload.model)}
    laid_out = {name: from_usual(name, arrays[usual]) for usual, name in params.items() if usual in arrays}
    known = [arrays[usual] for usual in params if usual in arrays]
    for usual, array in arrays.items():
        if usual in buffers:
            laid_out[buffers[usual]] = array
        elif usual not in params and not any(np.array_equal(array, other) for other in known):
            laid_out[usual] = array
    return laid_out


def _state(run: Run, found: _Weights) -> TrainState:
    """Makes a training state from sorted arrays."""
    initial = initial_buffers(run.workload.model)
    params = {name: array for name, array in found.weights.items() if name not in initial}
    buffers = {name: found.weights.get(name, array) for name, array in initial.items()}
    if not found.slots:
        return TrainState(0, params, empty_slots(run.optimizer, trained(run.workload.model.params())), buffers)
    updates = max(found.updates.values(), default=found.step or 0)
    step = updates if found.step is None else found.step
    if updates > step:
        raise Unreadable(f"its optimizer has taken {updates} updates in {step} steps")
    counts = {name: count for name, count in found.updates.items() if count != updates}
    return TrainState(step, params, found.slots, buffers, skipped=step - updates, counts=counts)


def _count(arrays: Arrays, name: str) -> int | None:
    """Reads a number of steps, which torch's optimizers keep as a float; None if there is none."""
    if (array := arrays.get(name)) is None:
        return None
    if array.shape != () or array.dtype.kind not in "iuf" or not 0 <= array <= MAX_STEPS or array != np.floor(array):
        raise Unreadable(f"its {name} is {array}, not one whole number from 0 to {MAX_STEPS}")
    return int(array)
