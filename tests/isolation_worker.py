"""A worker that writes down what is in its process: `found-RANK.json`, and its first weights in `initial-RANK.npz`."""

import gc
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.request import FRAMEWORKS
from samestep.common.runtime.directory import read_config
from samestep.common.runtime.measured import Measured
from samestep.common.runtime.worker import worker

ENOUGH = "SEEN_ENOUGH"
"""Set to end the run with this word for an error once the first weights are written down."""
FRAMEWORK_MODULES = ("torch", "tensorflow", "keras", "jax")


def loaded(among: tuple[str, ...] = FRAMEWORK_MODULES) -> list[str]:
    """The frameworks that are imported."""
    return [name for name in among if name in sys.modules]


def before_anything(framework: str) -> dict[str, object]:
    """What the fork server left to this process, which has done nothing yet."""
    found: dict[str, object] = {}
    gc.unfreeze()  # the server froze what it imported
    if framework == "torch":
        import torch

        found["tensors"] = sum(isinstance(each, torch.Tensor) for each in gc.get_objects())
        found["device"] = torch.cuda.is_initialized()
    if framework == "tf":
        import tensorflow as tf
        from tensorflow.python.eager import context

        found["tensors"] = sum(isinstance(each, tf.Tensor | tf.Variable) for each in gc.get_objects())
        found["device"] = context._context is not None  # tensorflow 2.21: made by the first operation
    return found


def params_of(program: object, framework: str) -> dict[str, np.ndarray]:
    """The parameters of a program that has not taken a step."""
    if framework == "torch":
        from samestep.torch_impl import weights

        return {name: w.to_neutral(w.parameter) for name, w in weights.named_weights(program.parts.bare).items()}
    return {name: variable.numpy() for name, variable in program.params.items()}


def wait_for_the_others(framework: str) -> None:
    """The first to end would have the others stopped."""
    if framework == "torch":
        import torch.distributed as dist

        dist.barrier()


def main(arguments: list[str]) -> int:
    """Does what every worker does, and looks around before, after `build`, and at the end."""
    run = Path(arguments[0])
    framework = read_config(run).framework
    rank = os.environ.get("RANK", "0")
    found = before_anything(framework)
    right = worker.train_and_measure

    def looked(program: object, *rest: object) -> Measured:
        np.savez(run / f"initial-{rank}.npz", **params_of(program, framework))
        if ENOUGH in os.environ:
            wait_for_the_others(framework)
            raise ConfigError(ENOUGH)
        return right(program, *rest)

    worker.train_and_measure = looked
    code = worker.main(arguments)
    found["loaded"] = loaded()
    found["temporary"] = tempfile.gettempdir()
    found["packages"] = [package for package in FRAMEWORKS.values() if f"{package}.program" in sys.modules]
    (run / f"found-{rank}.json").write_text(json.dumps(found))
    return code
