"""Ranks the layouts of a model on a machine: `samestep advise --workload gpt3-175b --machine a100-80gb --nodes 64`."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from samestep.common.catalog import require
from samestep.common.errors import ConfigError
from samestep.common.flags import check_fields, flag, flags, read_fields
from samestep.common.mesh import Mesh
from samestep.common.request import KEPT_WEIGHTS, RunConfig
from samestep.common.run import parse_prediction
from samestep.common.seconds.machine import Machine, load_machine
from samestep.common.seconds.step_time import StepTime
from samestep.common.workload.published import PUBLISHED
from samestep.experiments.advising.advice import Advice, advise
from samestep.experiments.advising.advice_text import document
from samestep.experiments.advising.calibration import calibrated
from samestep.experiments.advising.candidate_meshes import FRAMEWORK, Candidate
from samestep.experiments.advising.step_times import Timer, seconds_of
from samestep.experiments.advising.training_cost import Training
from samestep.experiments.cli.arguments import run_command
from samestep.experiments.cli.parser import Parser, add_flags
from samestep.experiments.cli.waiting import say_waiting
from samestep.experiments.printing.formats import FORMATS, check_format, write
from samestep.experiments.printing.text import count

HERE = "here"
"""This machine, among the names of machines."""
ASKED = ("workload", "model", "data", "batch_size", "optimizer")
"""The fields of a request that decide what is advised."""
_ABOUT = (
    "Rank every layout of a model that has room on a machine by its predicted time: strategy, mesh, schedule, micro-batch and "
    "recomputation. Nothing is run. Beside the workloads that can be run there are published models: "
    f"{', '.join(PUBLISHED)}."
)


@dataclasses.dataclass(frozen=True)
class SearchAssumptions(Training):
    """The machine, how it is used, and what for."""

    machine: str = flag(
        "a100-80gb", "a machine, a machine file of your own (FILE.toml), or here: the cores of this machine, in float32"
    )
    nodes: int = flag(1, "number of nodes; all their devices are used", least=1, most=100_000)
    mesh: str | None = flag(None, "axis sizes that are settled, as in tensor=8; the others are searched")
    weights: str = flag(
        "bf16",
        "parameters, activations and gradients kept in two bytes, beside master weights and optimizer state in float32",
        choices=KEPT_WEIGHTS,
    )
    calibrate: str | None = flag(
        None, "correct the predictions by measurements of your own on this machine: a directory of runs, at any depth"
    )
    format: str = flag("github", "github is for people, the others are for programs", choices=FORMATS)


def main(arguments: Sequence[str]) -> int:
    """Advises and prints; returns 0.

    Raises:
        ConfigError: The request is wrong, or the model has no room.
    """
    parser = Parser(prog="samestep advise", description=_ABOUT, allow_abbrev=False)
    parser.examples = (
        "samestep advise --workload gpt3-175b --machine a100-80gb --nodes 64",
        "samestep advise --workload llama3-8b --nodes 16 --tokens 1e12 --price 2",
        "samestep advise --workload prose-gpt --machine here",
    )
    add_flags(parser, "model", RunConfig, tuple(name for name in flags(RunConfig) if name not in ASKED))
    add_flags(parser, "machine", SearchAssumptions)
    given = vars(parser.parse_args(arguments))
    config = read_fields(RunConfig, {name: value for name, value in given.items() if name in ASKED})
    assumed = read_fields(SearchAssumptions, given)
    check_fields(assumed)
    check_format(assumed.format)
    what = "your model" if config.model else config.workload
    say_waiting(f"Ranking the layouts of {what} on {count(assumed.nodes, 'node')} of {assumed.machine}")
    advice = find_advice(config, assumed, "weights" in given)
    print(write(document(advice), assumed.format))
    return 0


def find_advice(config: RunConfig, assumed: SearchAssumptions, are_weights_given: bool) -> Advice:
    """Ranks the layouts of a model.

    Args:
        config: The model, its batch and its optimizer.
        assumed: The machine, and how it is used.
        are_weights_given: Whether the bytes of a weight were asked for, which this machine has no choice of.

    Raises:
        ConfigError: The request is wrong, or the model has no room.
        Unavailable: This machine cannot be measured.
    """
    keep = None if assumed.mesh is None else Mesh.parse(assumed.mesh)
    is_here = assumed.machine == HERE
    if is_here and (are_weights_given or assumed.nodes > 1):
        raise ConfigError("--machine here is one node, whose cores train in float32; leave out --weights and --nodes.")
    timer, machine = _this_machine() if is_here else (seconds_of, load_machine(assumed.machine))
    found = None
    if assumed.calibrate is not None:
        timer, found = calibrated(timer, machine, Path(assumed.calibrate))
    with _described(config) as asked:
        base = parse_prediction(asked, None if is_here else assumed.weights)
        training = Training(assumed.tokens, assumed.price)
        training.check(base)
        ranked = advise(base, machine, assumed.nodes, keep, timer)
        return dataclasses.replace(ranked, calibration=found, training=training)


@contextlib.contextmanager
def _described(config: RunConfig) -> Iterator[RunConfig]:
    """The request with the description of the user's model, for as long as that is there."""
    if config.model is None:
        yield config
        return
    from samestep.common.runtime.parent.launcher import Launcher  # here: it needs NumPy

    with Launcher() as launcher:
        yield launcher.describe(config)


def _this_machine() -> tuple[Timer, Machine]:
    """Returns the cores of this machine, which is measured first if it was not.

    Raises:
        Unavailable: torch is not installed, which measures and is measured.
    """
    require(FRAMEWORK)
    from samestep.experiments.advising.local_machine import load_here, store
    from samestep.experiments.advising.local_times import seconds_here
    from samestep.experiments.calibrate import calibrate

    if (here := load_here()) is None:
        print("Measuring this machine first, in about a minute; samestep calibrate does so again.", file=sys.stderr)
        store(here := calibrate())

    def timer(candidate: Candidate, machine: Machine) -> StepTime:
        return seconds_here(candidate.run, dataclasses.replace(here, machine=machine))

    return timer, here.machine


if __name__ == "__main__":
    run_command(main)
