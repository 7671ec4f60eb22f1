"""Takes a checkpoint along: weights of torch's model as a file of Keras, by what comparing the two has proven."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pydantic

from samestep.common.errors import ConfigError, ParityFailed
from samestep.common.files.reading import open_plain, read_json
from samestep.common.files.safetensors import SUFFIX, read_safetensors
from samestep.common.files.writing import replacing
from samestep.common.judging.ported import PortedModel
from samestep.common.porting.case import DIFFERENT, PortCase, PortVerdict
from samestep.common.porting.model_trace import ASKED, SAVED, TraceRequest
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.parent.models.description_request import Servers, run_tasks
from samestep.common.runtime.parent.models.porting import SIDES, port, write_weights

ENDING, MANIFEST = ".weights.h5", ".weights.json"
_NO_WEIGHTS = "num_batches_tracked"


def target_of(checkpoint: Path) -> Path:
    """Returns where the weights go: beside the checkpoint, under its name.

    Raises:
        ConfigError: The checkpoint is no such file, or there is a file already.
    """
    if checkpoint.suffix != SUFFIX or not checkpoint.is_file():
        raise ConfigError(
            f"--weights {checkpoint} is not a {SUFFIX} file; give one with the weights of the torch model."
        )
    made = checkpoint.with_suffix(ENDING)
    if taken := [str(path) for path in (made, checkpoint.with_suffix(MANIFEST)) if path.exists()]:
        raise ConfigError(f"{' and '.join(taken)} is there already; move it away first.")
    return made


def port_along(
    folder: Path, config: RunConfig, server: Servers, accepted: Sequence[str] = (), checkpoint: Path | None = None
) -> PortedModel:
    """Judges whether two implementations are the same model, and takes a checkpoint along if they are.

    Args:
        folder: A new one.
        config: As for `port`.
        server: Finds the fork servers.
        accepted: As for `port`.
        checkpoint: The weights of torch's model, by torch's names; None if there are none to take along.
    """
    case, verdict = port(folder, config, server, accepted)
    if checkpoint is not None:
        convert(folder, case, verdict, checkpoint, server)
    return case, verdict


def convert(folder: Path, case: PortCase, verdict: PortVerdict, checkpoint: Path, server: Servers) -> None:
    """Writes the weights of a checkpoint as Keras reads them, and a manifest of which became which.

    Args:
        folder: The folder of the port.
        case: Both implementations.
        verdict: The verdict of these.
        checkpoint: The weights of torch's model, by torch's names.
        server: Finds the fork servers.

    Raises:
        ParityFailed: The two are not the same model.
        ConfigError: The checkpoint is not one of the torch model.
    """
    made = target_of(checkpoint)
    if verdict.kind == DIFFERENT:
        raise ParityFailed(f"--weights: nothing is written, since the two are not the same model: {verdict.sentence}")
    arrays = read_safetensors(checkpoint)
    names = {held.native: held for pair in case.matching.pairs for held in pair.source}
    if lacking := [name for name in names if name not in arrays]:
        raise ConfigError(
            f"--weights {checkpoint} lacks {', '.join(lacking)} of the torch model; give its own checkpoint."
        )
    for name, held in names.items():
        if arrays[name].shape != held.shape:
            has, wanted = list(arrays[name].shape), list(held.shape)
            raise ConfigError(f"--weights {checkpoint}: {name} is shaped {has}, in the torch model {wanted}.")
    values = {held.neutral: arrays[name].astype(np.float64).transpose(held.permutation) for name, held in names.items()}
    taken = case.matching.to_target(values)
    path = folder / f"{SIDES[1]}-trace"
    buffers = {held.neutral for pair in case.matching.pairs if pair.is_buffer for held in pair.target}
    write_weights(path, {n: v for n, v in taken.items() if n not in buffers}, {n: taken[n] for n in buffers})
    asked = pydantic.TypeAdapter(TraceRequest).validate_python(read_json(path / ASKED))
    write_json(path / ASKED, dataclasses.replace(asked, saves=True))
    run_tasks({path: SIDES[1]}, RunConfig(model=asked.model, data=asked.data), server)
    with replacing(made) as file, open_plain(path / SAVED) as saved:
        shutil.copyfileobj(saved, file)
    unused = [name for name in arrays if name not in names and not name.endswith(_NO_WEIGHTS)]
    write_json(checkpoint.with_suffix(MANIFEST), manifest(case, verdict, checkpoint, unused))


def manifest(case: PortCase, verdict: PortVerdict, checkpoint: Path, unused: list[str]) -> dict[str, object]:
    """Returns what says which weight became which.

    Args:
        case: Both implementations.
        verdict: The verdict of these.
        checkpoint: Where the weights come from.
        unused: What stands there that belongs to no parameter of the torch model.
    """
    pairs = [
        {
            "torch": [held.native for held in pair.source],
            "keras": [held.native for held in pair.target],
            "shapes": [list(held.shape) for held in pair.target],
            "change": pair.permutation,
        }
        for pair in case.matching.pairs
    ]
    return {"checkpoint": checkpoint.name, "verdict": verdict.sentence, "weights": pairs, "unused": unused}
