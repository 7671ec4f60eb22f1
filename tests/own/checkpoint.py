"""A checkpoint of the perceptron of `ports.py`, with an array that belongs to none of its parameters."""

from pathlib import Path

import numpy as np

from samestep.common.files.safetensors import write_safetensors

SHAPES = {
    "0.weight": (16, 6),
    "0.bias": (16,),
    "2.weight": (12, 16),
    "2.bias": (12,),
    "4.weight": (3, 12),
    "4.bias": (3,),
}


def checkpoint(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    draw = np.random.default_rng(7)
    arrays = {name: draw.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    write_safetensors(folder / "old.safetensors", {**arrays, "ema": np.ones(2, np.float32)})
    return folder / "old.safetensors", arrays
