"""What around a script decides its numbers: versions of packages, and variables of the environment."""

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
