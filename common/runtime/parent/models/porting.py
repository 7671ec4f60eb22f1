"""Runs two implementations of a model from the same weights and compares what each computed."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pydantic

from samestep.common.files.reading import read_json
from samestep.common.porting.case import DIFFERENT, PortCase, PortVerdict
from samestep.common.porting.matching.matching import Matching, match
from samestep.common.porting.model_trace import ASKED, Amendments, TraceRequest, read_trace
from samestep.common.porting.starting_weights import read_weights, write_weights
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.parent.models.description_request import Servers, ask_description, run_tasks
from samestep.common.workload.accepted import ACCEPTABLE
from samestep.common.workload.declaration import BUILDERS
from samestep.common.workload.models.description import DATA, Description, read_description, read_initials
from samestep.common.workload.models.dtypes import note_on_dtypes
from samestep.common.workload.optimizers.table import DEFAULT, optimizer_named

Trace = Callable[[dict[Path, str]], None]
"""({folder: framework}) -> None: traces what each folder requests."""
SIDES = BUILDERS
"""The framework that has the weights, and the one that gets them."""
BATCH_SIZE = 16
"""The default number of examples in a step."""
_PATIENCE = 10
"""How many times as long as a description a trace may take, since it trains."""
_MOST_ROUNDS = 20
"""The most first differences that are compensated for, one after the other."""
_NUDGED = 0.1
"""The scale of the noise that is added to a parameter whose initial elements are all equal. Zeros would hide that it is not
used."""


def ask_descriptions(folder: Path, config: RunConfig) -> dict[Path, str]:
    """Writes the requests for both descriptions; returns the tasks.

    Args:
        folder: The folder of the port.
        config: Names the model, the data and the seed.
    """
    for side in SIDES:
        ask_description(folder / side, dataclasses.replace(config, framework=side))
    return {folder / side: side for side in SIDES}


def ask_traces(folder: Path, config: RunConfig) -> tuple[dict[Path, str], Matching]:
    """Matches the parameters and writes the requests for both traces; returns the tasks and the matching.

    Args:
        folder: The folder of the port, with both descriptions.
        config: Names the data; its batch size, steps and optimizer are those of the trace.

    Raises:
        ConfigError: A parameter has no counterpart.
    """
    described = [read_description(str(folder / side)) for side in SIDES]
    matching = match(described[0].layers, described[1].layers, described[0].names, SIDES)
    params, buffers = read_initials(str(folder / SIDES[0]))
    rng = np.random.default_rng(config.seed)
    still = {layer.params["second_bias"].neutral for layer in described[0].layers if "second_bias" in layer.params}
    params = {name: value if name in still else _nudged(value, rng) for name, value in params.items()}
    buffers = {name: _nudged(value, rng) for name, value in buffers.items()}
    for side, about in zip(SIDES, described, strict=True):
        _ask(folder / f"{side}-trace", side, about, config)
    write_weights(folder / "torch-trace", params, buffers)
    _transfer_weights(folder, matching)
    return {folder / f"{side}-trace": side for side in SIDES}, matching


def _nudged(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns an array with noise added if its elements are all equal, and unchanged otherwise."""
    if value.dtype.kind != "f" or not value.size or (value != value.flat[0]).any():
        return value
    return value + np.float32(_NUDGED) * np.abs(rng.normal(size=value.shape)).astype(np.float32).astype(np.float64)


def _ask(folder: Path, side: str, about: Description, config: RunConfig) -> None:
    name = config.optimizer or DEFAULT
    folder.mkdir(exist_ok=True)
    kept = folder.parent.resolve() / SIDES[0] / DATA  # from a data function: both traces use the same arrays
    asked = TraceRequest(
        framework=side,
        model=about.source,
        data=str(kept if kept.exists() else config.data),
        seed=config.seed,
        batch_size=0 if config.batch_size is None else config.batch_size,
        steps=0 if config.steps is None else config.steps,
        optimizer=name,
        learning_rate=config.learning_rate or optimizer_named(name).default_rate,
    )
    write_json(folder / ASKED, asked)


def _transfer_weights(folder: Path, matching: Matching) -> None:
    """Gives the target's trace the weights of the source; what the source lacks, the target keeps."""
    params, buffers = read_initials(str(folder / SIDES[1]))
    ours = read_weights(folder / f"{SIDES[0]}-trace")
    transferred = matching.to_target({**ours[0], **ours[1]})
    rng = np.random.default_rng(0)
    lacking = {held.neutral for held, *_ in matching.only_target}
    params = {name: _nudged(value, rng) if name in lacking else value for name, value in params.items()}
    write_weights(
        folder / f"{SIDES[1]}-trace",
        {name: transferred.get(name, value) for name, value in params.items()},
        {name: transferred.get(name, value) for name, value in buffers.items()},
    )


def _amend(folder: Path, sides: Sequence[str], amendments: Amendments, trace: Trace) -> None:
    """Traces some sides again with amendments."""
    for path in (folder / f"{side}-trace" for side in sides):
        asked = pydantic.TypeAdapter(TraceRequest).validate_python(read_json(path / ASKED))
        write_json(path / ASKED, dataclasses.replace(asked, amendments=amendments))
    trace({folder / f"{side}-trace": side for side in sides})


def _sum_biases(folder: Path, matching: Matching, frozen: Collection[str]) -> None:
    """Adds the second of two biases to the first and zeroes it, once it is frozen: their sum then decays as one bias does."""
    params, buffers = read_weights(folder)
    for pair in matching.pairs:
        if len(pair.source) == 2 and pair.source[1].native in frozen:
            first, second = (held.neutral for held in pair.source)
            params |= {first: params[first] + params[second], second: np.zeros_like(params[second])}
    write_weights(folder, params, buffers)


def read_case(folder: Path, matching: Matching, accepted: Sequence[str] = ()) -> PortCase:
    """Reads what both implementations computed.

    Args:
        folder: The folder of the port.
        matching: The matching of their parameters.
        accepted: The names of the differences that were compensated for.
    """
    source, target = (read_trace(folder / f"{side}-trace") for side in SIDES)
    ours, theirs = ({**params, **buffers} for params, buffers in (read_weights(folder / f"{s}-trace") for s in SIDES))
    return PortCase(matching, source, target, (ours, theirs), SIDES, accepted)


def accept(folder: Path, case: PortCase, names: Sequence[str], trace: Trace) -> tuple[PortCase, PortVerdict]:
    """Judges a port, compensating for accepted differences one by one until the first difference left is not accepted.

    Args:
        folder: The folder of the port.
        case: Both implementations.
        names: The names of the accepted differences.
        trace: Runs traces again.
    """
    from samestep.common.porting.accepting import compensate  # here: it needs SciPy, which a run does not
    from samestep.common.porting.port_verdict import judge_port

    amended, said = Amendments(), list[str]()
    while (verdict := judge_port(case)).kind == DIFFERENT and len(said) < _MOST_ROUNDS:
        remedies = compensate(case, verdict, names)
        more = functools.reduce(operator.or_, remedies.values(), amended)
        if more == amended and remedies.keys() <= {*case.accepted}:
            break
        if more != amended:
            _sum_biases(folder / f"{SIDES[0]}-trace", case.matching, more.frozen)
            _amend(folder, SIDES if more.is_bare != amended.is_bare else SIDES[:1], more, trace)
        amended, used = more, tuple(name for name in ACCEPTABLE if name in remedies or name in case.accepted)
        case = read_case(folder, case.matching, used)
        said.append(f"accepted ({', '.join(remedies)}): {verdict.sentence.removeprefix('first difference: ')}")
    return case, dataclasses.replace(verdict, notes=(*verdict.notes, *said))


def port(
    folder: Path, config: RunConfig, server: Servers, accepted: Sequence[str] = ()
) -> tuple[PortCase, PortVerdict]:
    """Runs both implementations from the same weights and judges whether they are the same model.

    If a parameter fits in several ways, as a square kernel does, TensorFlow's model is run with each of them.

    Args:
        folder: A new folder.
        config: Names the model and the data; its batch size, steps and optimizer are those of the trace.
        server: Finds the fork servers.
        accepted: The names of accepted differences, in addition to those that the model's file accepts.

    Raises:
        SamestepError: A model cannot be built, or a parameter has no counterpart.
    """
    run_tasks(ask_descriptions(folder, config), config, server)
    tasks, matching = ask_traces(folder, config)
    patient = dataclasses.replace(config, timeout_seconds=_PATIENCE * config.timeout_seconds)
    trace = functools.partial(run_tasks, config=patient, server=server)
    trace(tasks)
    names = (*accepted, *read_description(str(folder / SIDES[0])).accept)
    case, verdict = decide(folder, *accept(folder, read_case(folder, matching), names, trace), names, trace)
    return case, dataclasses.replace(verdict, notes=(*verdict.notes, *_notes(folder)))


def decide(
    folder: Path, case: PortCase, verdict: PortVerdict, names: Sequence[str], trace: Trace
) -> tuple[PortCase, PortVerdict]:
    """Changes how parameters that fit in several ways are read, if that makes more layers agree.

    Args:
        folder: The folder of the port.
        case: Both implementations.
        verdict: The verdict on them.
        names: The names of the accepted differences.
        trace: Runs traces again.
    """
    from samestep.common.porting.port_verdict import reach  # here: it needs SciPy, which a run does not

    for pair in case.matching.pairs:
        for change in pair.other_changes:
            if verdict.kind != DIFFERENT:
                return case, verdict
            changed = case.matching.changed(pair, change)
            _transfer_weights(folder, changed)
            trace({folder / f"{SIDES[1]}-trace": SIDES[1]})
            other, other_verdict = accept(folder, read_case(folder, changed, case.accepted), names, trace)
            if reach(other, other_verdict) > reach(case, verdict):
                case, verdict = other, other_verdict
    return case, verdict


def _notes(folder: Path) -> list[str]:
    """Returns notes on dtypes that differ from those of the user's file, and on random draws that cannot be switched off."""
    described = {side: read_description(str(folder / side)) for side in SIDES}
    casts = [f"{side}: {note}" for side in SIDES if (note := note_on_dtypes(side, described[side].dtypes, "float64"))]
    drawing = [side for side in SIDES if not described[side].habits.are_stilled]
    return casts + [f"the forward pass of {side} draws random numbers that cannot be switched off" for side in drawing]
