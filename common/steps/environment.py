"""What affects the numbers of a script from outside: package versions, environment variables, and the source of its program."""

import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = (
    "torch",
    "numpy",
    "keras",
    "tensorflow",
    "transformers",
    "accelerate",
    "lightning",
    "pytorch-lightning",
    "deepspeed",
)
DECIDING = (
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "KERAS_BACKEND", "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS", "PYTHONHASHSEED", "TF_DETERMINISTIC_OPS", "TF_ENABLE_ONEDNN_OPTS", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "XLA_FLAGS",
)  # fmt: skip
"""The environment variables that affect numbers."""


def versions() -> Mapping[str, str]:
    """Returns the versions of Python and of the installed packages that affect numbers."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def environment() -> Mapping[str, str]:
    """Returns the environment variables that affect numbers and are set."""
    return {name: os.environ[name] for name in DECIDING if name in os.environ}


def input_file() -> str:
    """Returns an identification of the file behind the standard input of this process; "" if there is none."""
    try:
        status = os.fstat(0)
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def reads_program(given: str) -> bool:
    """Returns whether Python reads its program from standard input, and standard input is a given file.

    Args:
        given: The file, as `input_file` identifies it.
    """
    program = "<stdin>" if hasattr(sys, "ps1") else getattr(sys.modules.get("__main__"), "__file__", "")
    return program in ("<stdin>", "/dev/stdin") and given == input_file()
