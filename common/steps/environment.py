"""What around a script decides its numbers: versions of packages, variables of the environment, and whence its program comes."""

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
"""The variables of the environment that decide numbers."""


def versions() -> Mapping[str, str]:
    """Returns the versions of Python and of the packages that are installed."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def environment() -> Mapping[str, str]:
    """Returns the variables that are set."""
    return {name: os.environ[name] for name in DECIDING if name in os.environ}


def input_file() -> str:
    """Returns which file the standard input of this process is; "" if it has none."""
    try:
        status = os.fstat(0)
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def reads_program(given: str) -> bool:
    """Returns whether Python reads its program from its standard input, and that is a given file.

    Args:
        given: The file, as `input_file` says it.
    """
    program = "<stdin>" if hasattr(sys, "ps1") else getattr(sys.modules.get("__main__"), "__file__", "")
    return program in ("<stdin>", "/dev/stdin") and given == input_file()
