"""Ranks the layouts of a model on a machine: `samestep advise --workload gpt3-175b --machine a100-80gb --nodes 64`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, count, unknown
from samestep.common.flags import Scalar, flags, read_fields, spell_flag
from samestep.common.request import RunConfig
from samestep.common.run import parse_prediction
from samestep.common.seconds.machine import load_machine
from samestep.common.workload.published import PUBLISHED
from samestep.common.workload.table import resize, size_names
from samestep.experiments.advising.advice import Advice, advise
from samestep.experiments.advising.advice_text import document, report
from samestep.experiments.advising.assumptions import HERE, SearchAssumptions, check_request, say_model
from samestep.experiments.advising.calibration import calibrated
from samestep.experiments.advising.prediction import describing
from samestep.experiments.advising.ranking import Tell
from samestep.experiments.advising.step_times import seconds_of
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser, add_flags
from samestep.experiments.cli.vary import read_vary, split_values
from samestep.experiments.cli.waiting import Waiting
from samestep.experiments.printing.formats import Document, write

ASKED = ("workload", "model", "data", "batch_size", "optimizer")
"""The fields of a request on which the advice depends."""
_VARIED = ("devices", "nodes", "machine", "batch_size", "context", "optimizer", "weights", "mesh")
"""What `--vary` can vary besides the sizes of the workload."""
_VARY = (
    f"print the best layout for each value of {', '.join(_VARIED)} or a size of the workload, as in devices=64,512, or "
    "mesh=data=8;data=4,tensor=2 where values have commas; may be given several times"
)
_DEVICES = "Devices come by whole nodes: give --nodes, or --vary devices=64."
_ABOUT = (
    "Rank every layout of a model that fits on a machine by its predicted time: strategy, mesh, schedule, micro-batch and "
    "recomputation. Nothing is run. Besides the workloads that can be run, there are published models: "
    f"{', '.join(PUBLISHED)}."
)


def main(arguments: Sequence[str]) -> int:
    """Advises and prints; returns 0.

    Raises:
        ConfigError: The request is wrong, or the model has no room.
    """
    parser = Parser(prog="samestep advise", description=_ABOUT)
    parser.examples = (
        "samestep advise --workload gpt3-175b --machine a100-80gb --nodes 64",
        "samestep advise --workload llama3-8b --nodes 16 --tokens 1e12 --price 2",
        "samestep advise --workload deepseek-v3 --machine h100-80gb --nodes 256",
        "samestep advise --workload llama3-8b --nodes 8 --vary context=8192,131072",
        "samestep advise --workload prose-gpt --machine here",
        "samestep advise --machine here --nodes 4 --bandwidth 1gbit",
    )
    parser.elsewhere = {"--devices": _DEVICES, "--gpus": _DEVICES}
    add_flags(parser, "model", RunConfig, tuple(name for name in flags(RunConfig) if name not in ASKED))
    add_flags(parser, "machine", SearchAssumptions).add_argument(
        "--vary", action="append", default=[], metavar="NAME=VALUE,VALUE", help=_VARY
    )
    given = vars(parser.parse_args(arguments))
    axes = {name.replace("-", "_"): text for name, text in read_vary(given.pop("vary")).items()}
    form = str(given.get("format", "github"))
    if axes:
        print(write(_swept(given, axes), form))
        return 0
    advice = _advise(given)
    # figures of thousands of layouts are for programs only
    print(report(advice) if form == "github" else write(document(advice), form))
    return 0


def _advise(given: Mapping[str, Scalar], with_changes: bool = True) -> Advice:
    """Returns the advice for values that are keyed by the names of their flags."""
    config, assumed = _read(given)
    about = f"Ranking the layouts of {say_model(config)} on {count(assumed.nodes, 'node')} of {assumed.machine}"
    with Waiting(about) as waiting:
        return find_advice(config, assumed, "weights" in given, waiting.tell, with_changes)


def _read(given: Mapping[str, Scalar]) -> tuple[RunConfig, SearchAssumptions]:
    config = read_fields(RunConfig, {name: value for name, value in given.items() if name in ASKED})
    return config, read_fields(SearchAssumptions, given)


def _swept(given: Mapping[str, Scalar], varied: Mapping[str, str]) -> Document:
    """Advises for each combination of values.

    Raises:
        ConfigError: A name cannot vary, a value is wrong, or no combination has a layout.
    """
    from samestep.experiments.advising import sweep  # here: an advice on one thing does without

    workload = str(given.get("workload", RunConfig.workload))
    known = [*_VARIED, *(name for name in size_names(workload) if name not in _VARIED)]
    for name in varied:
        if name not in known:
            raise unknown("name in --vary", name, known)
        if name in given:
            raise ConfigError(f"--vary {name} and {spell_flag(name)} both set {name}; give it once.")

    axes = {name: split_values(name, text) for name, text in varied.items()}

    def together(values: Mapping[str, str]) -> Mapping[str, Scalar]:
        flags_given = {**given, **{name: value for name, value in values.items() if name in _VARIED}}
        sizes = {name: value for name, value in values.items() if name not in _VARIED}
        if "devices" in flags_given:
            flags_given["nodes"] = _nodes(
                str(flags_given.pop("devices")), str(flags_given.get("machine", SearchAssumptions.machine))
            )
        return {**flags_given, "workload": resize(workload, sizes) if sizes else workload}

    swept = sweep.sweep(
        axes,
        lambda values: check_request(*_read(together(values)), "weights" in {*given, *values}),
        lambda values: _advise(together(values), False),
    )
    return sweep.document(swept)


def _nodes(devices: str, machine: str) -> str:
    """Returns the number of nodes that have the given number of devices.

    Raises:
        ConfigError: They do not fill whole nodes, or the machine is `here`, whose number of cores is fixed.
    """
    if machine == HERE:
        raise ConfigError(f"--vary devices={devices}: --machine here has its own cores; take --vary nodes.")
    each = load_machine(machine).gpus_per_node
    if not devices.isdecimal() or int(devices) % each or not int(devices):
        raise ConfigError(f"{devices!r} is no number of devices that fills nodes of {each}; give a multiple of {each}.")
    return str(int(devices) // each)


def find_advice(
    config: RunConfig,
    assumed: SearchAssumptions,
    are_weights_given: bool,
    tell: Tell = lambda text: None,
    with_changes: bool = True,
) -> Advice:
    """Ranks the layouts of a model.

    Args:
        config: The model, its batch and its optimizer.
        assumed: The machine, and how it is used.
        are_weights_given: Whether the user gave `--weights`, which `--machine here` does not take.
        tell: Receives the progress of the search, in words.
        with_changes: Whether to look for what would be first under other conditions.

    Raises:
        ConfigError: The request is wrong, or the model does not fit.
        Unavailable: This machine cannot be measured.
    """
    config, keep, machine = check_request(config, assumed, are_weights_given)
    is_here, timer = machine is None, seconds_of
    if not machine:
        from samestep.experiments.advising.local_times import time_here  # here: few ask for it

        timer, machine = time_here(assumed.bandwidth)
    found = None
    if assumed.calibrate is not None:
        timer, found = calibrated(timer, machine, Path(assumed.calibrate))
    with describing(config) as describe:
        base = parse_prediction(describe(config), None if is_here else assumed.weights)
        assumed.check(base)
        ranked = advise(base, machine, assumed.nodes, keep, timer, tell, with_changes)
        return dataclasses.replace(ranked, calibration=found, training=assumed)


if __name__ == "__main__":
    run_command(main)
