"""Records public scripts in processes forked from this one, which has imported their framework.

The imports take longer than the steps. Files with other bytes are accepted as data sets, and random numbers are the same each
time, because seeds are set before a script sets its own.
"""

import atexit
import contextlib
import gc
import importlib
import os
import random
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from museum.forks import run_forked
from samestep.common.files.removing import discard_all
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.start import prepared

TIMEOUT_SECONDS = 400
_IMPORTS = {
    "torch": ("torch", "torch._dynamo", "torch.distributed", "torchvision", "accelerate", "transformers", "lightning"),
    "tf": ("keras", "tensorflow"),
}
_CHECKS = {
    "torchvision.datasets.utils": ("check_md5", "check_integrity"),
    "torchvision.datasets.mnist": ("check_integrity",),
    "torchvision.datasets.cifar": ("check_integrity",),
    "keras.src.utils.file_utils": ("validate_file",),
}
"""Module -> its functions that compare a file with the public original."""


def begin(framework: str) -> None:
    """Prepares this process to be forked.

    Args:
        framework: "torch" or "tf".
    """
    for name in _IMPORTS[framework]:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    _accept_stand_ins()
    if framework == "torch":
        sys.modules["torch"].set_num_threads(1)  # a pool of threads would not survive a fork
    gc.freeze()  # the recorder looks through all objects of a script, and these are not the script's


def _accept_stand_ins() -> None:
    for name, checks in _CHECKS.items():
        for check in checks if name in sys.modules else ():
            setattr(sys.modules[name], check, lambda path, *_, **__: Path(path).is_file())


def record(
    framework: str,
    words: Sequence[str],
    work: Path,
    environment: Mapping[str, str],
    options: RecordOptions,
    num: int = 1,
) -> bool:
    """Records a script; returns whether it succeeded.

    Args:
        framework: "torch" or "tf".
        words: The script and its arguments.
        work: The folder in which it is started.
        environment: Environment variables for it.
        options: The options of the record, which is replaced; the output of the script is written next to it.
        num: The number of processes, which are started as torchrun would.
    """
    out = Path(options.out)
    discard_all(out)
    prepared(out)

    def run(rank: int) -> object:
        kept = None
        os.setsid()
        with out.with_suffix(f".{rank}.log").open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(work)
        os.environ.update(environment)
        sys.path[:0] = [str((work / words[0]).parent), str(work)]
        sys.argv = list(words)
        _install(framework, options)
        with contextlib.suppress(SystemExit):
            kept = runpy.run_path(words[0], run_name="__main__")
        atexit._run_exitfuncs()
        return kept

    return run_forked(run, num, is_group=num > 1, timeout_seconds=TIMEOUT_SECONDS)


def _install(framework: str, options: RecordOptions) -> None:
    random.seed(0)
    np.random.seed(0)
    module: ModuleType = sys.modules["torch" if framework == "torch" else "tensorflow"]
    if framework == "torch":
        module.manual_seed(0)
        if os.environ.get("KERAS_BACKEND") == "torch":
            importlib.import_module("keras")
            _accept_stand_ins()
    else:
        module.random.set_seed(0)
    importlib.import_module(f"samestep.{framework}_impl.recording").install(options.to_json())
