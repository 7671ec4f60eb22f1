"""Transfers initial weights between two implementations of a user's model, and the reference's weights to a run's names."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pydantic

from samestep.common.errors import ConfigError
from samestep.common.files.reading import read_json
from samestep.common.porting.matching.matching import Matching, match
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.parent.models.description_request import Servers
from samestep.common.runtime.parent.models.porting import BATCH_SIZE, port
from samestep.common.strategy import Run
from samestep.common.workload.declaration import BUILDERS
from samestep.common.workload.models.description import (
    DATA,
    INITIAL,
    MATCHING,
    read_description,
    read_initials,
    write_initial,
)

_MOST_BYTES = 2**26
_FORMER = {
    f"{start}{name}": f"{start}{side}"
    for start in ("", "only_")
    for name, side in zip(BUILDERS, ("source", "target"), strict=True)
}


def transfer_weights(source: Path, target: Path, config: RunConfig, server: Servers) -> None:
    """Gives a model the initial weights of its counterpart in another framework.

    The counterpart's description is copied into the model's, since the run is compared with the counterpart's reference.

    Args:
        source: The description of the model that has the weights.
        target: The description of the model that gets them.
        config: Names the model and the data.
        server: Finds the fork servers.

    Raises:
        ConfigError: A parameter has no counterpart.
    """
    ours, theirs = read_description(str(source)), read_description(str(target))
    shutil.copytree(source, target / ours.framework)
    if (source / DATA).exists():
        shutil.copy(source / DATA, target / DATA)  # a data function may return different arrays each time
    matching = match(ours.layers, theirs.layers, ours.names, (ours.framework, theirs.framework))
    if lacking := [held.native for held, *_ in (*matching.only_source, *matching.only_target)]:
        raise ConfigError(
            f"--model {config.model}: {', '.join(lacking)} is in one of its two models only; `samestep port` with the same "
            f"flags says which layer differs."
        )
    if any(pair.other_changes for pair in matching.pairs):
        matching = _decide(target, config, server)
    write_json(target / MATCHING, matching)
    (params, buffers), own = (read_initials(str(folder)) for folder in (source, target))
    transferred = matching.to_target({**params, **buffers})
    made = ({name: transferred.get(name, value) for name, value in values.items()} for values in own)
    write_initial(target / INITIAL, *made)


def _decide(folder: Path, config: RunConfig, server: Servers) -> Matching:
    """Decides how ambiguous parameters match by running each way in which they fit, without a curve."""
    (folder / "port").mkdir()
    case, _ = port(folder / "port", dataclasses.replace(config, batch_size=BATCH_SIZE, steps=0), server)
    shutil.rmtree(folder / "port")
    return case.matching


def in_own_names(run: Run, params: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Returns the reference's parameters by the names and in the layout of a run's model.

    Args:
        run: The run; its model may have a counterpart, which is the reference.
        params: The reference's parameters by neutral name.
    """
    model = run.workload.model
    if (folder := model.facts.folder) is None or model.facts.counterpart is None:
        return params
    made = pydantic.TypeAdapter(Matching).validate_python(_renamed(read_json(Path(folder) / MATCHING, _MOST_BYTES)))
    transferred = made.to_target(params)
    return {name: transferred[name] for name in model.params()}


def _renamed(stored: object) -> object:
    """Returns a stored matching with the present names of its sides; an earlier version named them by framework."""
    if isinstance(stored, list):
        return [_renamed(each) for each in stored]
    if isinstance(stored, dict):
        return {_FORMER.get(name, name): _renamed(value) for name, value in stored.items()}
    return stored
