"""A state as a tf.train.Checkpoint, whose objects have the neutral names: `model/layers/0/kernel`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from samestep.common.program import TrainState

PREFIX = "ckpt"


def write_exported(state: TrainState, folder: Path) -> None:
    """Writes a state.

    Args:
        state: The state of the whole model.
        folder: A new folder.
    """
    arrays = {**state.params, **state.buffers}
    optimizer = {slot: _tree(values) for slot, values in state.slots.items()}
    step, updates = np.int64(state.step), {name: np.int64(state.updates_of(name)) for name in state.params}
    whole = tf.train.Checkpoint(
        model=_tree(arrays), optimizer=optimizer, step=tf.Variable(step), updates=_tree(updates)
    )
    whole.save(str(folder / PREFIX))  # `write` leaves nothing that `latest_checkpoint` finds


def _tree(arrays: Mapping[str, np.ndarray | np.int64]) -> dict:
    """Makes nested mappings along the parts of the names, with a variable at each leaf."""
    tree: dict = {}
    for name, array in arrays.items():
        *path, leaf = name.split("/")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = tf.Variable(array)
    return tree
