"""A worker that takes fp16 on CPU cores, where it is far too slow for anything else, and has one thing wrong if asked to."""

import os

from samestep.common.runtime.worker import worker

FIRST_SCALE = "FIRST_SCALE"
"""Names the environment variable with the scale to begin with."""


def main(arguments: list[str]) -> int:
    """Does what every worker does, on units that CPU cores do not have."""
    from samestep.torch_impl.techniques import precision

    precision.require = lambda run, device: None
    precision.FIRST_SCALE = float(os.environ.get(FIRST_SCALE, precision.FIRST_SCALE))
    return worker.main(arguments)
