"""Ranks the layouts of a model on a machine: `samestep advise --workload gpt3-175b --machine a100-80gb --nodes 64`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, unknown
from samestep.common.flag_words import read_bandwidth
from samestep.common.flags import Scalar, check_fields, flag, flags, read_fields, spell_flag
from samestep.common.mesh import Mesh
from samestep.common.request import KEPT_WEIGHTS, RunConfig
from samestep.common.run import parse_prediction
from samestep.common.seconds.machine import load_machine
from samestep.common.workload.models.spec import num_positions
from samestep.common.workload.published import PUBLISHED
from samestep.common.workload.table import resize, resolve, size_names
from samestep.experiments.advising.advice import Advice, advise
from samestep.experiments.advising.advice_text import document, report
from samestep.experiments.advising.calibration import calibrated
from samestep.experiments.advising.prediction import describing
from samestep.experiments.advising.ranking import Tell
from samestep.experiments.advising.step_times import seconds_of
from samestep.experiments.advising.training_cost import Training
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser, add_flags
from samestep.experiments.cli.vary import read_vary, split_values
from samestep.experiments.cli.waiting import Waiting
from samestep.experiments.printing.formats import FORMATS, Document, write
from samestep.experiments.printing.text import count

HERE = "here"
"""The name of this machine among the names of machines."""
ASKED = ("workload", "model", "data", "batch_size", "optimizer")
"""The fields of a request on which the advice depends."""
_MACHINE = "a100-80gb"
_VARIED = ("devices", "nodes", "machine", "batch_size", "context", "optimizer", "weights", "mesh")
"""What `--vary` can vary besides the sizes of the workload."""
_VARY = (
    f"print the best layout for each value of {', '.join(_VARIED)} or a size of the workload, as in devices=64,512; may be given "
    "several times"
)
_DEVICES = "Devices come by whole nodes: give --nodes, or --vary devices=64."
_ABOUT = (
    "Rank every layout of a model that fits a machine by its predicted time: strategy, mesh, schedule, micro-batch and "
    "recomputation. Nothing is run. Besides the workloads that can be run, there are published models: "
    f"{', '.join(PUBLISHED)}."
)


@dataclasses.dataclass(frozen=True)
class SearchAssumptions(Training):
    """The machine, how it is used, and what for."""

    machine: str = flag(
        _MACHINE, "a machine, a machine file of your own (FILE.toml), or here: the cores of this machine, in float32"
    )
    nodes: int = flag(1, "number of nodes; all their devices are used", least=1, most=100_000)
    context: int | None = flag(
        None,
        "tokens of a sequence; a batch that is not given then keeps its tokens, if the model is a published one",
        least=1,
    )
    bandwidth: str | None = flag(
        None, "with --machine here: the bandwidth of each node's link in either direction, over gloo, as in 1gbit"
    )
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
    axes = {name.replace("-", "_"): split_values(name, text) for name, text in read_vary(given.pop("vary")).items()}
    form = str(given.get("format", "github"))
    if axes:
        print(write(_swept(given, axes), form))
        return 0
    advice = _advise(given)
    # figures of thousands of layouts are for programs only
    print(report(advice) if form == "github" else write(document(advice), form))
    return 0


def _advise(given: Mapping[str, Scalar], with_changes: bool = True) -> Advice:
    """Advises on what was given, by the names of the flags."""
    config = read_fields(RunConfig, {name: value for name, value in given.items() if name in ASKED})
    assumed = read_fields(SearchAssumptions, given)
    check_fields(assumed)
    what = "your model" if config.model else config.workload
    about = f"Ranking the layouts of {what} on {count(assumed.nodes, 'node')} of {assumed.machine}"
    with Waiting(about) as waiting:
        return find_advice(config, assumed, "weights" in given, waiting.tell, with_changes)


def _swept(given: Mapping[str, Scalar], axes: Mapping[str, Sequence[str]]) -> Document:
    """Advises for each combination of values.

    Raises:
        ConfigError: A name cannot vary, or no combination has a layout.
    """
    from samestep.experiments.advising import sweep  # here: an advice on one thing does without

    workload = str(given.get("workload", RunConfig.workload))
    known = [*_VARIED, *(name for name in size_names(workload) if name not in _VARIED)]
    for name in axes:
        if name not in known:
            raise unknown("name in --vary", name, known)
        if name in given:
            raise ConfigError(f"--vary {name} and {spell_flag(name)} both set {name}; give it once.")

    def advise_on(values: Mapping[str, str]) -> Advice:
        flags_given = {**given, **{name: value for name, value in values.items() if name in _VARIED}}
        sizes = {name: value for name, value in values.items() if name not in _VARIED}
        if "devices" in flags_given:
            flags_given["nodes"] = _nodes(str(flags_given.pop("devices")), str(flags_given.get("machine", _MACHINE)))
        return _advise({**flags_given, "workload": resize(workload, sizes) if sizes else workload}, False)

    return sweep.document(sweep.sweep(axes, advise_on))


def _nodes(devices: str, machine: str) -> str:
    """Returns the number of nodes that have so many devices.

    Raises:
        ConfigError: They do not fill nodes, or the machine has as many as it has.
    """
    if machine == HERE:
        raise ConfigError(f"--vary devices={devices}: --machine here has its own cores; take --vary nodes.")
    each = load_machine(machine).gpus_per_node
    if not devices.isdecimal() or int(devices) % each or not int(devices):
        raise ConfigError(f"{devices} devices do not fill nodes of {each}; give a multiple of {each}.")
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
        are_weights_given: Whether the bytes of a weight were given, for which this machine has no choice.
        tell: Is told how far it is.
        with_changes: Whether to look for what would be first under other conditions.

    Raises:
        ConfigError: The request is wrong, or the model does not fit. Unavailable: This machine cannot be measured.
    """
    keep = None if assumed.mesh is None else Mesh.parse(assumed.mesh)
    is_here = assumed.machine == HERE
    _check_here(assumed, are_weights_given)
    if is_here:
        from samestep.experiments.advising.local_times import time_here  # here: few ask for it

        timer, machine = time_here(assumed.bandwidth)
    else:
        timer, machine = seconds_of, load_machine(assumed.machine)
    found = None
    if assumed.calibrate is not None:
        timer, found = calibrated(timer, machine, Path(assumed.calibrate))
    with describing(config) as describe:
        asked = describe(_with_context(config, assumed.context))
        base = parse_prediction(asked, None if is_here else assumed.weights)
        assumed.check(base)
        ranked = advise(base, machine, assumed.nodes, keep, timer, tell, with_changes)
        return dataclasses.replace(ranked, calibration=found, training=assumed)


def _with_context(config: RunConfig, context: int | None) -> RunConfig:
    """Returns the request with sequences of so many tokens; a published batch keeps its tokens.

    Raises:
        ConfigError: The model takes no sequences whose length could be chosen.
    """
    if context is None:
        return config
    if config.model is not None or "context" not in size_names(config.workload, config.data):
        what = "your model" if config.model else config.workload
        raise ConfigError(f"--context {context}: {what} has no size of that name; leave it out.")
    workload = resolve(config.workload)
    spelled, batch = resize(config.workload, {"context": str(context)}), config.batch_size
    if batch is None and workload.source:
        batch = max(1, workload.batch_size * num_positions(workload.model) // context)
    return dataclasses.replace(config, workload=spelled, batch_size=batch)


def _check_here(assumed: SearchAssumptions, are_weights_given: bool) -> None:
    """Refuses what this machine cannot be asked for, and a bandwidth of any other one."""
    if assumed.machine != HERE:
        if assumed.bandwidth is not None:
            raise ConfigError(
                "--bandwidth is of nodes like this machine, with --machine here; any other has network_bytes_per_second "
                "in its file."
            )
        return
    if assumed.bandwidth is not None:
        read_bandwidth(assumed.bandwidth)
    if are_weights_given:
        raise ConfigError("--machine here: its cores train in float32; leave out --weights.")
    if assumed.nodes > 1 and assumed.bandwidth is None:
        raise ConfigError(
            f"--machine here --nodes {assumed.nodes}: what their links carry is not known; add it, as in --bandwidth 1gbit."
        )


if __name__ == "__main__":
    run_command(main)
