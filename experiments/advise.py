"""Ranks the layouts of a model on a machine: `samestep advise --workload gpt3-175b --machine a100-80gb --nodes 64`."""

import dataclasses
import sys
from collections.abc import Sequence

from samestep.common.errors import ConfigError
from samestep.common.evidence.costs.machine import Machine, load_machine
from samestep.common.evidence.costs.step_time import StepTime
from samestep.common.flags import check_fields, flag, flags, read_fields
from samestep.common.mesh import Mesh
from samestep.common.request import PRECISIONS, RunConfig
from samestep.common.run import parse_prediction
from samestep.common.strategy import Run
from samestep.common.workload.published import PUBLISHED
from samestep.experiments import advice
from samestep.experiments.advice_text import document
from samestep.experiments.arguments import run_command
from samestep.experiments.candidates import Candidate
from samestep.experiments.formats import FORMATS, check_format, write
from samestep.experiments.parser import Parser, add_flags

ASKED = ("workload", "model", "data", "batch_size", "optimizer")
"""The fields of a request that decide what is advised."""
_ABOUT = (
    "Rank every layout of a model that has room on a machine by its predicted time: strategy, mesh, schedule, micro-batch and "
    "recomputation. Nothing is run. Beside the workloads that can be run there are published models: "
    f"{', '.join(PUBLISHED)}."
)


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """The machine, and how it is used."""

    machine: str = flag(
        "a100-80gb", "a machine, a machine file of your own (FILE.toml), or here: the cores of this machine, in float32"
    )
    nodes: int = flag(1, "number of nodes; all their devices are used", least=1, most=100_000)
    mesh: str | None = flag(None, "axis sizes that are settled, as in tensor=8; the others are searched")
    precision: str = flag(
        "bf16",
        "parameters, activations and gradients in two bytes, beside master weights and optimizer state in float32",
        choices=PRECISIONS,
    )
    format: str = flag("github", "github is for people, the others are for programs", choices=FORMATS)


def main(arguments: Sequence[str]) -> int:
    """Advises and prints; returns 0.

    Raises:
        ConfigError: The request is wrong, or the model has no room.
    """
    parser = Parser(prog="samestep advise", description=_ABOUT, allow_abbrev=False)
    add_flags(parser, "model", RunConfig, tuple(name for name in flags(RunConfig) if name not in ASKED))
    add_flags(parser, "machine", Assumptions)
    given = vars(parser.parse_args(arguments))
    config = read_fields(RunConfig, {name: value for name, value in given.items() if name in ASKED})
    assumed = read_fields(Assumptions, given)
    check_fields(assumed)
    check_format(assumed.format)
    keep = None if assumed.mesh is None else Mesh.parse(assumed.mesh)
    if assumed.machine == "here":
        if "precision" in given or assumed.nodes > 1:
            raise ConfigError(
                "--machine here is one node, whose cores train in float32; leave out --precision and --nodes."
            )
        found = _advise_here(parse_prediction(config), keep)
    else:
        base = parse_prediction(config, assumed.precision)
        found = advice.advise(base, load_machine(assumed.machine), assumed.nodes, keep)
    print(write(document(found), assumed.format))
    return 0


def _advise_here(base: Run, keep: Mesh | None) -> advice.Advice:
    """Ranks layouts on the cores of this machine, which is measured first if it was not."""
    from samestep.experiments.calibrate import calibrate
    from samestep.experiments.here import load_here, store
    from samestep.experiments.local_times import seconds_here

    if (here := load_here()) is None:
        print("Measuring this machine first, in about a minute; samestep calibrate does so again.", file=sys.stderr)
        store(here := calibrate())

    def timer(candidate: Candidate, machine: Machine) -> StepTime:
        return seconds_here(candidate.run, dataclasses.replace(here, machine=machine), candidate.recomputes)

    return advice.advise(base, here.machine, 1, keep, timer)


if __name__ == "__main__":
    run_command(main)
