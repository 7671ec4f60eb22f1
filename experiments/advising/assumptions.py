"""The inputs of advice besides the model: the machine, how it is used, and what can be refused without a search."""

import dataclasses

from samestep.common.errors import ConfigError
from samestep.common.flag_words import read_bandwidth
from samestep.common.flags import flag
from samestep.common.mesh import Mesh
from samestep.common.request import AXIS_FLAGS, KEPT_WEIGHTS, RunConfig
from samestep.common.seconds.machine import Machine, load_machine
from samestep.common.workload.models.spec import num_positions
from samestep.common.workload.table import resize, resolve, size_names
from samestep.experiments.advising.training_cost import Training
from samestep.experiments.printing.formats import FORMATS

HERE = "here"
"""The name of this machine among the names of machines."""


@dataclasses.dataclass(frozen=True)
class SearchAssumptions(Training):
    """The machine, how it is used, and what for."""

    machine: str = flag(
        "a100-80gb",
        "a machine, a file that describes yours (FILE.toml), or here: the cores of this machine, in float32",
    )
    nodes: int = flag(1, "number of nodes; all their devices are used", least=1, most=100_000)
    context: int | None = flag(
        None,
        "tokens per sequence; without --batch-size, the batch of a published model keeps its number of tokens",
        least=1,
    )
    bandwidth: str | None = flag(
        None, "with --machine here: the bandwidth of each node's link in either direction, over gloo, as in 1gbit"
    )
    mesh: str | None = flag(None, "fixed axis sizes, as in tensor=8; the others are searched", elsewhere=AXIS_FLAGS)
    weights: str = flag(
        "bf16",
        "keep parameters, activations and gradients in two bytes, and master weights and optimizer state in float32",
        choices=KEPT_WEIGHTS,
    )
    calibrate: str | None = flag(
        None, "correct the predictions by your own runs on this machine, in this directory at any depth"
    )
    format: str = flag("github", "github is for people, the others are for programs", choices=FORMATS)


def say_model(config: RunConfig) -> str:
    """Returns what a message calls the model."""
    return "your model" if config.model else config.workload


def check_request(
    config: RunConfig, assumed: SearchAssumptions, are_weights_given: bool
) -> tuple[RunConfig, Mesh | None, Machine | None]:
    """Checks what can be checked without a search.

    Args:
        config: The model, its batch and its optimizer.
        assumed: The machine, and how it is used.
        are_weights_given: Whether the user gave `--weights`, which `--machine here` does not take.

    Returns:
        The request with its context; the mesh that is settled; and the machine, None for this one, which has to be measured.

    Raises:
        ConfigError: The request is wrong.
    """
    _check_here(assumed, are_weights_given)
    machine = None if assumed.machine == HERE else load_machine(assumed.machine)
    if config.model is None:
        resolve(config.workload, config.data)
    return _with_context(config, assumed.context), None if assumed.mesh is None else Mesh.parse(assumed.mesh), machine


def _with_context(config: RunConfig, context: int | None) -> RunConfig:
    """Returns the request with sequences of the given number of tokens; a published batch keeps its number of tokens.

    Raises:
        ConfigError: The model takes no sequences whose length could be chosen.
    """
    if context is None:
        return config
    if config.model is not None or "context" not in size_names(config.workload, config.data):
        raise ConfigError(f"--context {context}: {say_model(config)} has no size of that name; leave it out.")
    workload = resolve(config.workload)
    spelled, batch = resize(config.workload, {"context": str(context)}), config.batch_size
    if batch is None and workload.source:
        batch = max(1, workload.batch_size * num_positions(workload.model) // context)
    return dataclasses.replace(config, workload=spelled, batch_size=batch)


def _check_here(assumed: SearchAssumptions, are_weights_given: bool) -> None:
    """Refuses settings that `--machine here` does not take, and a bandwidth for any other machine."""
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
