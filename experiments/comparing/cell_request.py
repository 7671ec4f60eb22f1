"""The request that a cell of a comparison stands for, and whether a result belongs to it."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import spell_flag
from samestep.common.mesh import Mesh
from samestep.common.request import RunConfig
from samestep.common.runtime.records import RunResult
from samestep.common.techniques.used import counts_devices
from samestep.experiments.comparing import comparison_file
from samestep.experiments.comparing.plan import Plan

_ELSEWHERE = ("out", "described")
"""The fields of a request that say where its files are, which may have been moved."""
_FILLED_IN = ("devices", "mesh", "steps", "batch_size", "optimizer", "learning_rate", "decay_steps")
"""The fields that are taken from the workload, or from another field, if they were not given."""


def request_of(cell: Cell, base: RunConfig, plan: Plan) -> RunConfig:
    """Makes the request of a cell: strategies of one device get one, and those that were not named get a dtype that they support.

    Args:
        cell: The cell of the comparison.
        base: What all cells of the comparison share.
        plan: The plan of the comparison.

    Raises:
        ConfigError: There is no such option, or no such value of it.
    """
    config, info = cell.apply_to(base), cell.info
    possible = config.dtype in info.dtypes or (cell in plan.named and not cell.is_oracle)
    has_devices = bool(info.axes) or (cell.is_oracle and bool(counts_devices(config.techniques)))
    return dataclasses.replace(
        config,
        devices=config.devices if cell.get("devices") else None if config.mesh else base.devices if has_devices else 1,
        dtype=config.dtype if possible else info.dtypes[0],
        threads=1 if cell.is_oracle else config.threads,
        techniques=config.techniques.of_reference() if cell.is_oracle else config.techniques,
        parity=True if cell in plan.required else config.parity,
    )


def refuse_other(run: Path, result: RunResult, wanted: RunConfig) -> None:
    """Refuses a result that is not the cell's, because `compare.toml` was changed or directories were moved.

    Args:
        run: The directory of the result.
        result: The result that it holds.
        wanted: The request of the cell, its defaults filled in or not.

    Raises:
        ConfigError: It is of another request; the message says in what it differs.
    """
    for name, there, asked in _differences(result.config, wanted):
        raise ConfigError(
            f"{run} holds another run than {comparison_file.NAME} asks for: {spell_flag(name)} is {there} there, and "
            f"{asked} here: {result.command}; move it away, and --resume measures it again."
        )


def _differences(config: RunConfig, wanted: RunConfig) -> Iterator[tuple[str, object, object]]:
    """Yields the fields in which a complete request is not the one that is wanted, each with both values."""
    mine, theirs = _plain(config), _plain(wanted)
    for name, asked in theirs.items():
        is_open = asked is None and name in _FILLED_IN
        is_replaced = name == "workload" and wanted.model is not None
        if not (is_open or is_replaced) and name in mine and mine[name] != asked:
            yield name, mine[name], asked


def _plain(config: RunConfig) -> Mapping[str, object]:
    """Returns all that a request sets, by name; a mesh however its axes are ordered."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    mesh = None if config.mesh is None else str(Mesh(tuple(sorted(Mesh.parse(config.mesh).axes))))
    nested = {**config.options, **dataclasses.asdict(config.techniques)}
    left_out = (*_ELSEWHERE, "options", "techniques")
    return {name: value for name, value in values.items() if name not in left_out} | nested | {"mesh": mesh}
