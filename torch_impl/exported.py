"""Exports a state as a directory of torch.distributed.checkpoint, with the names of torch's modules and optimizers.

References:
    torch.distributed.checkpoint.state_dict.get_state_dict, whose result has this layout.
"""

import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

from samestep.common.program import TrainState
from samestep.common.runtime.checkpoints.usual_names import to_usual, usual_name, usual_slot


def write_exported(state: TrainState, folder: Path) -> None:
    """Writes a state.

    Args:
        state: The state of the whole model.
        folder: A new folder; writing into an existing one would mix two steps (docs/found.md).
    """
    model = {usual_name(name): _tensor(name, array) for name, array in state.params.items()}
    model |= {name.replace("/", "."): torch.from_numpy(array) for name, array in state.buffers.items()}
    optimizer: dict[str, dict[str, torch.Tensor]] = {}
    for slot, arrays in state.slots.items():
        for name, array in arrays.items():
            own = optimizer.setdefault(usual_name(name), {"step": torch.tensor(float(state.updates_of(name)))})
            own[usual_slot(slot)] = _tensor(name, array)
    with warnings.catch_warnings(action="ignore"):  # torch warns that there is only one process
        whole = {"model": model, "optimizer": {"state": optimizer}, "step": torch.tensor(state.step)}
        dcp.save(whole, checkpoint_id=str(folder), no_dist=True)


def _tensor(name: str, array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(to_usual(name, array)))
