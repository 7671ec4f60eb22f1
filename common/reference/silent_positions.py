"""Mistakes where examples are cut by positions and each part is taken for a whole, as mutants."""

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.models.layers import Saved, layers_below
from samestep.common.reference.models.transformer import Attention, Embedding
from samestep.common.reference.mutants import Context
from samestep.common.reference.program import TrainingProgram


def local_positions(program: TrainingProgram, context: Context) -> bool:
    """Numbers positions anew in each part.

    Args:
        program: The program to be made wrong.
        context: Has the number of parts.
    """
    found, devices = [layer for layer in layers_below(program.model) if isinstance(layer, Embedding)], context.devices
    tables = [program.params[f"{each.name}/positions/table"] for each in found]
    if not found or devices == 1 or any(len(table) % devices for table in tables):
        return False
    for layer in found:
        _number_anew(layer, devices)
    return True


def _number_anew(layer: Embedding, parts: int) -> None:
    name, right = f"{layer.name}/positions/table", layer.backward

    def rows(params: Arrays) -> np.ndarray:
        tokens = len(params[name])
        return np.arange(tokens) % (tokens // parts)

    def forward(params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        return params[f"{layer.name}/tokens/table"][x] + params[name][rows(params)], x

    def backward(params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        right(params, saved, dy, gradients)
        gradients[name] = np.zeros_like(params[name])
        np.add.at(gradients[name], rows(params), dy.sum(axis=0))
        return dy

    vars(layer).update(forward=forward, backward=backward)


def local_attention(program: TrainingProgram, context: Context) -> bool:
    """Lets positions see those of their own part alone.

    Args:
        program: The program to be made wrong.
        context: Has the number of parts.
    """
    found, devices = [layer for layer in layers_below(program.model) if isinstance(layer, Attention)], context.devices

    def sees(tokens: int) -> np.ndarray:
        part = np.arange(tokens) * devices // tokens
        return np.tri(tokens) * (part[:, None] == part)

    for layer in found:
        layer.sees = sees
    return bool(found) and devices > 1
