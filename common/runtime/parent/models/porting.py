"""Runs two implementations of a model from the same weights and reads what each computed."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.files.writing import replacing
from samestep.common.porting.case import DIFFERENT, Case, Verdict, make_case
from samestep.common.porting.matching.matching import Matching, match
from samestep.common.porting.trace import ASKED, WEIGHTS, Asked, read_trace, read_weights
from samestep.common.porting.verdict import judge_port, reach
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.parent.models.describing import Servers, ask_description, run_tasks
from samestep.common.workload.models.dtypes import note_on_dtypes
from samestep.common.workload.models.own import DATA, Description, OwnSpec, read_description
from samestep.common.workload.optimizers import OptimizerSpec
from samestep.common.workload.own import RATES

SIDES = ("torch", "tf")
BATCH_SIZE = 16
"""Examples of a step, unless given."""
_PATIENCE = 10
"""How many times as long as a description a trace may take: it trains."""
_NUDGED = 0.1
"""The standard deviation of what is added to a parameter that is constant at the start: a zero hides that it is not used."""


def ask_descriptions(folder: Path, config: RunConfig) -> dict[Path, str]:
    """Writes what asks for both descriptions; returns the tasks.

    Args:
        folder: Of the port.
        config: Names the model, the data and the seed.
    """
    for side in SIDES:
        ask_description(folder / side, dataclasses.replace(config, framework=side))
    return {folder / side: side for side in SIDES}


def ask_traces(folder: Path, config: RunConfig) -> tuple[dict[Path, str], Matching]:
    """Matches the parameters and writes what asks for both traces; returns the tasks and the matching.

    Args:
        folder: Of the port, with both descriptions.
        config: Names the data; its batch size, steps and optimizer are those of the trace.

    Raises:
        ConfigError: A parameter has no counterpart.
    """
    described = [read_description(str(folder / side)) for side in SIDES]
    matching = match(described[0].layers, described[1].layers, described[0].names)
    params, buffers = (OwnSpec.of(str(folder / "torch")).initial(kind) for kind in ("params", "buffers"))
    rng = np.random.default_rng(config.seed)
    still = {layer.params["second_bias"].neutral for layer in described[0].layers if "second_bias" in layer.params}
    params = {name: value if name in still else _nudged(value, rng) for name, value in params.items()}
    buffers = {name: _nudged(value, rng) for name, value in buffers.items()}
    for side, about in zip(SIDES, described, strict=True):
        _ask(folder / f"{side}-trace", side, about, config)
    write_weights(folder / "torch-trace", params, buffers)
    _carry(folder, matching)
    return {folder / f"{side}-trace": side for side in SIDES}, matching


def _nudged(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array as it is, unless it is constant: then each element is moved by a tenth of a unit or so."""
    if value.dtype.kind != "f" or not value.size or (value != value.flat[0]).any():
        return value
    return value + np.float32(_NUDGED) * np.abs(rng.normal(size=value.shape)).astype(np.float32).astype(np.float64)


def _ask(folder: Path, side: str, about: Description, config: RunConfig) -> None:
    name = config.optimizer or next(iter(RATES))
    folder.mkdir(exist_ok=True)
    kept = folder.parent.resolve() / SIDES[0] / DATA  # what a function returned: both trace the same arrays
    asked = Asked(
        framework=side,
        model=about.source,
        data=str(kept if kept.exists() else config.data),
        loss=about.loss,
        seed=config.seed,
        batch_size=0 if config.batch_size is None else config.batch_size,
        steps=0 if config.steps is None else config.steps,
        optimizer=OptimizerSpec(name, config.learning_rate or RATES[name]),
    )
    write_json(folder / ASKED, asked)


def write_weights(folder: Path, params: Mapping[str, np.ndarray], buffers: Mapping[str, np.ndarray]) -> None:
    """Writes the weights that a trace starts from.

    Args:
        folder: Of the trace.
        params: By the framework's own neutral names.
        buffers: Likewise.
    """
    arrays = {f"params/{name}": value for name, value in params.items()}
    arrays |= {f"buffers/{name}": value for name, value in buffers.items()}
    with replacing(folder / WEIGHTS) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _carry(folder: Path, matching: Matching) -> None:
    """Gives TensorFlow's trace torch's weights; what torch lacks keeps TensorFlow's own."""
    own = OwnSpec.of(str(folder / "tf"))
    params, buffers = own.initial("params"), own.initial("buffers")
    ours = read_weights(folder / "torch-trace")
    carried = matching.to_tf({**ours[0], **ours[1]})
    rng = np.random.default_rng(0)
    lacking = {held.neutral for held, *_ in matching.only_tf}
    params = {name: _nudged(value, rng) if name in lacking else value for name, value in params.items()}
    write_weights(
        folder / "tf-trace",
        {name: carried.get(name, value) for name, value in params.items()},
        {name: carried.get(name, value) for name, value in buffers.items()},
    )


def read_case(folder: Path, matching: Matching) -> Case:
    """Reads what both implementations computed.

    Args:
        folder: Of the port.
        matching: Of their parameters.
    """
    torch, tf = (read_trace(folder / f"{side}-trace") for side in SIDES)
    ours, theirs = ({**params, **buffers} for params, buffers in (read_weights(folder / f"{s}-trace") for s in SIDES))
    return make_case(matching, torch, tf, (ours, theirs))


def port(folder: Path, config: RunConfig, server: Servers) -> tuple[Case, Verdict]:
    """Runs both implementations from the same weights and judges whether they are the same model.

    A square kernel that fits both ways is decided by running TensorFlow's both ways.

    Args:
        folder: A new one.
        config: Names the model and the data; its batch size, steps and optimizer are those of the trace.
        server: Finds the fork servers.

    Raises:
        SamestepError: A model cannot be built, or a parameter has no counterpart.
    """
    run_tasks(ask_descriptions(folder, config), config, server)
    tasks, matching = ask_traces(folder, config)
    patient = dataclasses.replace(config, timeout_seconds=_PATIENCE * config.timeout_seconds)
    run_tasks(tasks, patient, server)
    case = read_case(folder, matching)
    verdict = judge_port(case)
    for pair in filter(lambda pair: pair.is_ambiguous, matching.pairs):
        if verdict.kind == DIFFERENT:
            flipped = case.matching.flipped(pair)
            _carry(folder, flipped)
            run_tasks({folder / f"{SIDES[1]}-trace": SIDES[1]}, patient, server)
            other = read_case(folder, flipped)
            if reach(other, other_verdict := judge_port(other)) > reach(case, verdict):
                case, verdict = other, other_verdict
    return case, dataclasses.replace(verdict, notes=(*verdict.notes, *_notes(folder)))


def _notes(folder: Path) -> list[str]:
    """What random draws of a forward pass are not held still; and what is in another dtype than its file's."""
    described = {side: read_description(str(folder / side)) for side in SIDES}
    casts = [f"{side}: {note}" for side in SIDES if (note := note_on_dtypes(side, described[side].dtypes, "float64"))]
    drawing = [side for side in SIDES if not described[side].habits.are_stilled]
    return casts + [
        f"the forward pass of {side} draws random numbers that nothing here switches off" for side in drawing
    ]
