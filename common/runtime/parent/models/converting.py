"""Converts a checkpoint from one implementation of a model to the other, once comparing them has matched their parameters."""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pydantic

from samestep.common.errors import ConfigError, ParityFailed, unknown
from samestep.common.files.output_file import check_output
from samestep.common.files.reading import Unreadable, open_plain, read_json
from samestep.common.files.safetensors import SUFFIX, read_safetensors
from samestep.common.files.writing import replacing
from samestep.common.frameworks import conventions
from samestep.common.porting.case import DIFFERENT, PortCase, PortVerdict
from samestep.common.porting.matching.pairing import Pair
from samestep.common.porting.model_trace import ASKED, TraceRequest
from samestep.common.porting.starting_weights import read_weights, saved_weights, write_weights
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.parent.models.description_request import Servers, run_tasks
from samestep.common.runtime.parent.models.porting import SIDES
from samestep.common.workload.models.layer import LayerTensor

_NO_WEIGHTS = "num_batches_tracked"
_ENDS = {conventions(side).followed: end for end, side in enumerate(SIDES)}
"""The framework that the weights are written for -> its place in `SIDES`."""


@dataclasses.dataclass(frozen=True)
class WeightsFile:
    """A checkpoint that is converted if two implementations turn out to be the same model.

    Attributes:
        path: A `.safetensors` file with the names of its model's parameters, or a file that Keras' `save_weights` wrote.
        to: The framework for which it is converted: "torch" or "keras".
    """

    path: Path
    to: str

    @property
    def sides(self) -> tuple[int, int]:
        """The places in `SIDES` of the framework that has the weights and of the one that gets them."""
        return 1 - _ENDS[self.to], _ENDS[self.to]

    @property
    def names(self) -> tuple[str, str]:
        """The names of the framework that has the weights and of the one that gets them."""
        start, end = (conventions(SIDES[place]).followed for place in self.sides)
        return start, end

    @property
    def made(self) -> tuple[Path, Path]:
        """The file with the converted weights, next to the checkpoint, and the manifest of which weight became which."""
        start, end = (conventions(SIDES[place]) for place in self.sides)
        old = next(each for each in start.read_suffixes if self.path.name.endswith(each))
        name = self.path.name.removesuffix(old) + end.weights_suffix
        return self.path.with_name(name), self.path.with_name(name).with_suffix(".json")

    def check(self) -> None:
        """Refuses a checkpoint that cannot be converted.

        Raises:
            ConfigError: The framework is unknown, the checkpoint is not a file of weights, or a file to write already exists.
        """
        if self.to not in _ENDS:
            raise unknown("framework", self.to, _ENDS, "It was given with --to.")
        owner, reads = self.names[0], conventions(SIDES[self.sides[0]]).read_suffixes
        if not self.path.name.endswith(reads) or not self.path.is_file():
            raise ConfigError(
                f"--weights {self.path} is not a {' or '.join(reads)} file; give one with the weights of the {owner} model."
            )
        if taken := [str(path) for path in self.made if path.exists()]:
            raise ConfigError(
                f"{' and '.join(taken)} would be overwritten; move {'them' if len(taken) > 1 else 'it'} away first."
            )
        for path in self.made:
            check_output(path, "--weights:")


def convert(folder: Path, case: PortCase, verdict: PortVerdict, checkpoint: WeightsFile, server: Servers) -> None:
    """Writes the weights of a checkpoint in the other framework's format, and a manifest of which weight became which.

    Args:
        folder: The folder of the port.
        case: Both implementations.
        verdict: The verdict on them.
        checkpoint: The checkpoint of one of them.
        server: Finds the fork servers.

    Raises:
        ParityFailed: The two are not the same model.
        ConfigError: The checkpoint does not fit its model.
    """
    checkpoint.check()
    (made, said), (start, end) = checkpoint.made, checkpoint.sides
    if verdict.kind == DIFFERENT:
        raise ParityFailed(f"--weights: nothing is written, since the two are not the same model: {verdict.sentence}")
    pairs = case.matching.pairs
    names = {held.native: held for pair in pairs for held in _sides(pair)[start]}
    if checkpoint.path.name.endswith(SUFFIX):
        values, unused = _read(checkpoint, names)
    else:
        values, unused = _ask(folder, start, "load", server, str(checkpoint.path.resolve())), []
    taken = (case.matching.to_target if end else case.matching.to_source)(values)
    path = folder / f"{SIDES[end]}-trace"
    buffers = {held.neutral for pair in pairs if pair.is_buffer for held in _sides(pair)[end]}
    write_weights(path, {n: v for n, v in taken.items() if n not in buffers}, {n: taken[n] for n in buffers})
    _ask(folder, end, "save", server)
    with replacing(made) as file, open_plain(saved_weights(path, SIDES[end])) as saved:
        shutil.copyfileobj(saved, file)
    write_json(said, manifest(case, verdict, checkpoint, unused))


def _sides(pair: Pair) -> tuple[tuple[LayerTensor, ...], tuple[LayerTensor, ...]]:
    return pair.source, pair.target


def _read(checkpoint: WeightsFile, names: Mapping[str, LayerTensor]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Reads a `.safetensors` file. Returns the arrays by neutral name, in the neutral layout, and the names of unused entries."""
    path, owner = checkpoint.path, checkpoint.names[0]
    try:
        arrays = read_safetensors(path)
    except Unreadable as error:
        raise ConfigError(f"--weights {path} cannot be read: {error}.") from None
    if lacking := [name for name in names if name not in arrays]:
        raise ConfigError(f"--weights {path} lacks {', '.join(lacking)} of the {owner} model; give its own checkpoint.")
    for name, held in names.items():
        if arrays[name].shape != held.shape:
            has, wanted = list(arrays[name].shape), list(held.shape)
            raise ConfigError(
                f"--weights {path}: {name} has shape {has}, and {wanted} in the {owner} model; give its own checkpoint."
            )
    values = {held.neutral: arrays[name].astype(np.float64).transpose(held.permutation) for name, held in names.items()}
    return values, [name for name in arrays if name not in names and not name.endswith(_NO_WEIGHTS)]


def _ask(folder: Path, side: int, task: str, server: Servers, checkpoint: str = "") -> dict[str, np.ndarray]:
    """Makes a worker save or load weights; returns those that its folder then holds, by neutral name."""
    path = folder / f"{SIDES[side]}-trace"
    asked = pydantic.TypeAdapter(TraceRequest).validate_python(read_json(path / ASKED))
    write_json(path / ASKED, dataclasses.replace(asked, task=task, checkpoint=checkpoint))
    run_tasks({path: SIDES[side]}, RunConfig(model=asked.model, data=asked.data), server)
    params, buffers = read_weights(path)
    return {**params, **buffers}


def manifest(case: PortCase, verdict: PortVerdict, checkpoint: WeightsFile, unused: Sequence[str]) -> dict[str, object]:
    """Returns the manifest that says which weight became which.

    Args:
        case: Both implementations.
        verdict: The verdict on them.
        checkpoint: The checkpoint from which the weights come.
        unused: The entries of the checkpoint that belong to no parameter of its model.
    """
    (start, end), (owner, taker) = checkpoint.sides, checkpoint.names
    pairs = [
        {
            owner: [held.native for held in _sides(pair)[start]],
            taker: [held.native for held in _sides(pair)[end]],
            "shapes": [list(held.shape) for held in _sides(pair)[end]],
            "change": pair.permutation,
        }
        for pair in case.matching.pairs
    ]
    return {"checkpoint": checkpoint.path.name, "verdict": verdict.sentence, "weights": pairs, "unused": [*unused]}
