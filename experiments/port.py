"""Compares two implementations of your model: `samestep port --model net.py --data arrays.npz`."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError, ParityFailed
from samestep.common.flags import MAX_FACTOR, MAX_STEPS, flag, read_fields, split_list
from samestep.common.request import MAX_SECONDS, MAX_SEED, RunConfig
from samestep.common.workload.accepted import ACCEPTABLE, check_accepted
from samestep.common.workload.declared import absolute_source
from samestep.common.workload.optimizers.table import DEFAULT, OPTIMIZERS, optimizer_named
from samestep.experiments.cli import github_actions
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser, add_flags
from samestep.experiments.printing.formats import add_format, write

if TYPE_CHECKING:
    from samestep.common.runtime.parent.models.converting import WeightsFile

_ELEMENTWISE = {name: kind for name in OPTIMIZERS if (kind := optimizer_named(name)).is_elementwise}
"""The optimizers that do not depend on the roles of parameters, which two implementations need not have in common."""
_RATES = ", ".join(f"2^{math.log2(kind.default_rate):.0f} for {name}" for name, kind in reversed(_ELEMENTWISE.items()))


@dataclasses.dataclass(frozen=True)
class PortRequest:
    """The request of a port: the fields of a run's request that it has, with its own defaults."""

    model: str | None = flag(None, "FILE.py, or FILE.py:NAME of the samestep.Model in it, with torch= and tf=")
    data: str | None = flag(
        None, "a .npz file, or FILE.py:FUNCTION, which returns the arrays; both models get the same"
    )
    batch_size: int = flag(16, "examples of a step", least=1)
    steps: int = flag(100, "steps of the curve; 0 takes none", least=0, most=MAX_STEPS)
    optimizer: str = flag(DEFAULT, "how weights are updated, unless the samestep.Model says it", choices=_ELEMENTWISE)
    learning_rate: float | None = flag(None, f"its step size (default: {_RATES})", above=0, most=MAX_FACTOR)
    seed: int = flag(0, "determines the initial weights and the order of the examples", least=0, most=MAX_SEED)
    timeout_seconds: float = flag(
        60.0,
        "end a model that takes longer to be built; what trains may take ten times as long",
        least=1,
        most=MAX_SECONDS,
    )


_ACCEPT = f"known differences between the two that you accept, separated by commas: {', '.join(ACCEPTABLE)}"
_WEIGHTS = (
    "a checkpoint of one model, FILE.safetensors or what Keras' save_weights wrote, which --to writes for the other if the two "
    "are the same model"
)
_ABOUT = (
    "Load the same weights into your torch model and into your Keras model, compare them in float64 layer by layer, and say "
    "which layer differs first and why. One batch, one step, then a curve."
)


def main(arguments: Sequence[str]) -> int:
    """Compares and prints; returns 4 if the two are not the same model.

    Raises:
        SamestepError: The request is wrong, a model cannot be built, or a parameter has no counterpart.
    """
    given = vars(_parser().parse_args(arguments))
    form = given.pop("format")
    path, target = given.pop("weights"), given.pop("to")
    named = given.pop("accept", None)
    accepted = (
        () if named is None else split_list(named, f"--accept '{named}'", "difference", ",".join([*ACCEPTABLE][:2]))
    )
    accepted = check_accepted(accepted, "It was given with --accept.")
    config = RunConfig(**dataclasses.asdict(read_fields(PortRequest, given)))
    if config.model is None:
        raise ConfigError("samestep port needs --model FILE.py, with a torch model and a tf model in it.")
    checkpoint = _checkpoint(path, target)
    absolute_source(config.model)  # reports a wrong name before anything is imported
    from samestep.common.runtime.parent.launcher import Launcher  # here: --help imports no NumPy
    from samestep.experiments.printing.port_report import port_document

    print("Importing torch and tensorflow, building both models ...", file=sys.stderr, flush=True)
    with Launcher() as launcher:
        case, verdict = launcher.port(config, accepted, checkpoint)
    document = port_document(case, verdict)
    print(write(document, form), flush=True)
    github_actions.show(document)
    if checkpoint is not None:
        made, manifest = checkpoint.made
        print(f"Wrote {made} for {target}, and {manifest}, which says what became of each weight.", file=sys.stderr)
    return ParityFailed.exit_code if verdict.kind == "different" else 0


def _parser() -> Parser:
    parser = Parser(prog="samestep port", description=_ABOUT)
    parser.examples = (
        "samestep port --model net.py --data mine.npz",
        "samestep port --model net.py --data mine.npz --accept double_bias,epsilon",
        "samestep port --model net.py --data d.npz --weights w.safetensors --to keras",
        "samestep port --model net.py --data d.npz --weights w.weights.h5 --to torch",
    )
    add_flags(parser, "port", PortRequest)
    parser.add_argument("--accept", metavar="NAMES", help=_ACCEPT)
    parser.add_argument("--weights", metavar="FILE", type=Path, help=_WEIGHTS)
    parser.add_argument("--to", metavar="FRAMEWORK", help="keras or torch: what --weights is written for")
    add_format(parser)
    return parser


def _checkpoint(path: Path | None, target: str | None) -> "WeightsFile | None":
    """Returns the checkpoint that is to be converted; None if none was given."""
    if path is None and target is None:
        return None
    if path is None or target is None:
        raise ConfigError("--weights FILE and --to FRAMEWORK belong together; give both, or neither.")
    from samestep.common.runtime.parent.models.converting import WeightsFile  # here: --help imports no NumPy

    checkpoint = WeightsFile(path, target)
    checkpoint.check()
    return checkpoint


if __name__ == "__main__":
    run_command(main)
