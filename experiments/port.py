"""Holds two implementations of your model against each other: `samestep port --model net.py --data arrays.npz`."""

import dataclasses
from collections.abc import Sequence

from samestep.common.errors import ConfigError, ParityFailed
from samestep.common.flags import flags, read_fields
from samestep.common.request import RunConfig
from samestep.experiments.arguments import run_command
from samestep.experiments.formats import check_format, write
from samestep.experiments.parser import Parser, add_flags, add_format

ASKED = ("model", "data", "steps", "batch_size", "optimizer", "learning_rate", "seed", "timeout_seconds")
"""The fields of a request that a port has."""
STEPS = 100
_ABOUT = (
    "Load the same weights into your torch model and into your Keras model, compare them in float64 layer by layer, and say "
    "which layer differs first and why. One batch, one step, then a curve."
)


def main(arguments: Sequence[str]) -> int:
    """Compares and prints; returns 4 if the two are not the same model.

    Raises:
        SamestepError: The request is wrong, a model cannot be built, or a parameter has no counterpart.
    """
    parser = Parser(prog="samestep port", description=_ABOUT, allow_abbrev=False)
    add_flags(parser, "port", RunConfig, [name for name in flags(RunConfig) if name not in ASKED])
    add_format(parser)
    given = vars(parser.parse_args(arguments))
    form = given.pop("format")
    check_format(form)
    config = read_fields(RunConfig, given)
    if config.model is None:
        raise ConfigError("samestep port needs --model FILE.py, with a torch model and a tf model in it.")
    from samestep.common.runtime.parent.launcher import Launcher  # here: --help imports no NumPy
    from samestep.common.runtime.parent.porting import BATCH_SIZE
    from samestep.experiments.port_report import port_document

    config = dataclasses.replace(config, batch_size=config.batch_size or BATCH_SIZE, steps=config.steps or STEPS)
    with Launcher() as launcher:
        case, verdict = launcher.port(config)
    print(write(port_document(case, verdict), form))
    return ParityFailed.exit_code if verdict.kind == "different" else 0


if __name__ == "__main__":
    run_command(main)
