"""Questions about a model, as functions: how to lay it out on a machine, and whether its two implementations are the same."""

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samestep.common.flags import Scalar, check_fields, read_fields
from samestep.common.request import RunConfig
from samestep.common.workload.accepted import check_accepted
from samestep.experiments.advising.advice import Advice

if TYPE_CHECKING:
    from samestep.common.judging.ported import PortCase, PortVerdict

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class PortResult:
    """The result of comparing two implementations of a model.

    Attributes:
        case: Both implementations.
        verdict: Whether they are the same, and the first layer that differs.
    """

    case: "PortCase"
    verdict: "PortVerdict"

    @property
    def is_same(self) -> bool:
        """Whether the two are the same model."""
        return self.verdict.kind != "different"

    def report(self) -> str:
        """Returns what `samestep port` prints."""
        from samestep.experiments.printing.port_report import port_document

        return port_document(self.case, self.verdict).text()


def advise(
    workload: str = "prose-gpt",
    *,
    machine: str = "a100-80gb",
    nodes: int = 1,
    batch_size: int | None = None,
    optimizer: str | None = None,
    context: int | None = None,
    mesh: str | None = None,
    weights: str | None = None,
    model: Path | None = None,
    data: Path | None = None,
    calibrate: Path | None = None,
    tokens: float | None = None,
    price: float | None = None,
) -> Advice:
    """Ranks every layout of a model that fits on a machine by its predicted time. Nothing is run.

    Args:
        workload: What is trained, as in "gpt3-175b"; a model of yours replaces it.
        machine: A machine, a file that describes yours, or "here".
        nodes: The number of machines, all of whose devices are used.
        batch_size: The number of examples of a step, over all devices.
        optimizer: How weights are updated.
        context: The number of tokens of a sequence. If no batch size is given, the batch of a published model keeps its number
            of tokens.
        mesh: Axis sizes that are fixed, as in "tensor=8".
        weights: "bf16", the default, keeps two bytes for each parameter, activation and gradient; "float32" four.
        model: FILE.py with a samestep.Model in it.
        data: Its arrays.
        calibrate: A directory of your own runs, by which the predictions are corrected.
        tokens: The number of tokens of the whole training, for the days, the device hours and the energy that it takes.
        price: The price of one device for an hour.

    Raises:
        ConfigError: The request is wrong, or no layout fits.
        Unavailable: The machine is "here", and torch, with which it is measured, is not installed.
    """
    from samestep.experiments.advise import find_advice
    from samestep.experiments.advising.assumptions import SearchAssumptions

    asked = {"workload": workload, "batch_size": batch_size, "optimizer": optimizer, **_paths(model=model, data=data)}
    assumed = {
        "machine": machine,
        "nodes": nodes,
        "context": context,
        "mesh": mesh,
        "weights": weights,
        **_paths(calibrate=calibrate),
    }
    assumed |= {"tokens": tokens, "price": price}
    found = read_fields(SearchAssumptions, _given(assumed))
    check_fields(found)
    return find_advice(read_fields(RunConfig, _given(asked)), found, weights is not None)


def port(
    model: Path,
    *,
    data: Path | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    optimizer: str | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    accept: Sequence[str] = (),
) -> PortResult:
    """Compares your torch model with your Keras model, with the same weights, layer by layer in float64.

    Arguments that are not given have the defaults of the command.

    Args:
        model: FILE.py, or FILE.py:NAME, of the samestep.Model in it, with torch= and tf=.
        data: A .npz file, or FILE.py:FUNCTION, which returns the arrays; both models get the same.
        batch_size: The number of examples of a step.
        steps: The number of steps of the curve; 0 takes none.
        optimizer: How weights are updated, unless the model says it.
        learning_rate: The step size of the optimizer.
        seed: Determines the initial weights and the order of the examples.
        accept: Known differences that do not count, by name.

    Raises:
        SamestepError: The request is wrong, a model cannot be built, or a parameter has no counterpart.
    """
    from samestep.common.runtime.parent.launcher import Launcher
    from samestep.experiments.port import PortRequest

    accepted = check_accepted(accept, "It stands in accept=.") if accept else ()
    numbers = {"batch_size": batch_size, "steps": steps, "learning_rate": learning_rate, "seed": seed}
    asked = {"optimizer": optimizer, **numbers, **_paths(model=model, data=data)}
    request = read_fields(PortRequest, _given(asked))
    with Launcher() as launcher:
        return PortResult(*launcher.port(RunConfig(**dataclasses.asdict(request)), accepted))


def _paths(**paths: Path | None) -> dict[str, Scalar]:
    return {name: None if path is None else os.fspath(path) for name, path in paths.items()}


def _given(values: dict[str, Scalar]) -> dict[str, Scalar]:
    return {name: value for name, value in values.items() if value is not None}
