"""Carries torch's initial weights to the user's TensorFlow model, and the reference's weights to its names."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pydantic

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays
from samestep.common.files.reading import read_json
from samestep.common.files.writing import replacing
from samestep.common.porting.matching.matching import Matching, match
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.parent.models.describing import Servers
from samestep.common.runtime.parent.models.porting import BATCH_SIZE, port
from samestep.common.strategy import Run
from samestep.common.workload.models.own import DATA, INITIAL, MATCHING, TWIN, OwnSpec, read_description

_MOST_BYTES = 2**26


def carry(folder: Path, torch: Path, config: RunConfig, server: Servers) -> None:
    """Gives the description of a TensorFlow model the weights of its torch model.

    The description of the torch model goes into it: the run is held against that one's reference.

    Args:
        folder: The description of the TensorFlow model.
        torch: That of the torch model.
        config: Names the model and the data.
        server: Finds the fork servers.

    Raises:
        ConfigError: A parameter has no counterpart.
    """
    shutil.copytree(torch, folder / TWIN)
    if (torch / DATA).exists():
        shutil.copy(torch / DATA, folder / DATA)  # a function may return other arrays each time
    ours, theirs = read_description(str(torch)), read_description(str(folder))
    matching = match(ours.layers, theirs.layers, ours.names)
    if lacking := [held.native for held, *_ in (*matching.only_torch, *matching.only_tf)]:
        raise ConfigError(
            f"--model {config.model}: {', '.join(lacking)} is in one of its two models only; `samestep port` with the same "
            f"flags says which layer differs."
        )
    if any(pair.is_ambiguous for pair in matching.pairs):
        matching = _decide(folder, config, server)
    write_json(folder / MATCHING, matching)
    initial = {kind: OwnSpec.of(str(torch)).initial(kind) for kind in ("params", "buffers")}
    own = {kind: _initial(folder, kind) for kind in initial}
    carried = matching.to_tf({**initial["params"], **initial["buffers"]})
    arrays = {f"{kind}/{name}": carried.get(name, value) for kind in own for name, value in own[kind].items()}
    with replacing(folder / INITIAL) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _initial(folder: Path, kind: str) -> dict[str, np.ndarray]:
    arrays = read_arrays(folder / INITIAL)
    return {name.removeprefix(f"{kind}/"): value for name, value in arrays.items() if name.startswith(f"{kind}/")}


def _decide(folder: Path, config: RunConfig, server: Servers) -> Matching:
    """Runs a square kernel both ways, without a curve."""
    (folder / "port").mkdir()
    case, _ = port(folder / "port", dataclasses.replace(config, batch_size=BATCH_SIZE, steps=0), server)
    shutil.rmtree(folder / "port")
    return case.matching


def in_own_names(run: Run, params: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The reference's parameters by the names and in the layout of a run's model.

    Args:
        run: The run; its model may have a twin, which is the reference.
        params: The reference's parameters by neutral name.
    """
    model = run.workload.model
    if not isinstance(model, OwnSpec) or model.twin is None:
        return params
    stored = read_json(Path(model.path) / MATCHING, _MOST_BYTES)
    made = pydantic.TypeAdapter(Matching).validate_python(stored).to_tf(params)
    return {name: made[name] for name in model.params()}
