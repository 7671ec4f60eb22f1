"""From what was asked to what will run: every default filled in, everything impossible refused, nothing started."""

import dataclasses
import functools
from pathlib import Path

from common.config import FRAMEWORKS, RunConfig, Scalar, check_numbers, read_value
from common.errors import ConfigError, unknown
from common.mesh import Mesh
from common.runtime.directory import refuse_taken
from common.runtime.records import read_state
from common.strategy import StrategyInfo, framework_info, require_row, strategy_info
from common.workload.data.dataset import DataSpec
from common.workload.optimizers import OptimizerSpec
from common.workload.table import Workload, resolve


def check(config: RunConfig) -> tuple[RunConfig, Workload]:
    """Makes a request complete and sure to be startable.

    Args:
        config: As asked for; None stands for a default.

    Returns:
        The same request with mesh, steps, batch size, optimizer and rate filled in; and its workload.

    Raises:
        ConfigError: The request is wrong.
        Unavailable: The framework is not installed, or a package of the row's or with the data is not.
    """
    check_numbers(config)
    info = strategy_info(config.framework, config.strategy)
    if config.dtype not in info.dtypes:
        raise ConfigError(
            f"{config.framework}:{info.name} trains in {' or '.join(info.dtypes)}, not in {config.dtype}."
        )
    options = dataclasses.asdict(info.options(**check_options(config.framework, info, config.options)))
    mesh = _mesh(config, info, info.compiled_cores(options))
    workload = resolve(config)
    batch_size = config.batch_size or workload.batch_size
    _check_batch(batch_size, mesh, config.techniques.micro_batches)
    if batch_size > (examples := _num_examples(workload.data)):
        raise ConfigError(
            f"global batch {batch_size} is more than the {examples} examples there are; use --batch-size {examples} or less."
        )
    optimizer = workload.optimizer(config)
    complete = dataclasses.replace(
        config,
        devices=mesh.size,
        mesh=str(mesh),
        steps=config.steps or workload.steps,
        batch_size=batch_size,
        optimizer=optimizer.name,
        learning_rate=optimizer.learning_rate,
        options=options,
    )
    info.needs(workload, complete)
    _check_start(complete, workload, optimizer)
    if config.out is not None:
        refuse_taken(Path(config.out))
    require_row(config.framework, config.strategy)  # last: a wrong request is wrong on every machine
    return complete, workload


@functools.cache
def _num_examples(data: DataSpec) -> int:
    return len(data.load().train_inputs)


def _check_start(config: RunConfig, workload: Workload, optimizer: OptimizerSpec) -> None:
    """Refuses a state that the run could not continue."""
    if config.start_from is None:
        return
    state = read_state(Path(config.start_from))
    given = f"--start-from {config.start_from}"
    if state.step >= (config.steps or 0):
        raise ConfigError(f"{given} is at step {state.step}; --steps counts from zero, give more than {config.steps}.")
    held = {name: value.shape for name, value in state.params.items()}
    wanted = {name: param.shape for name, param in workload.model.params().items()}
    for name in {**wanted, **held}:
        if held.get(name) != wanted.get(name):
            raise ConfigError(
                f"{given} holds another model: its {name} is {_shape(held.get(name))}, that of {config.workload} is "
                f"{_shape(wanted.get(name))}; give the --workload that its config.json names."
            )
    if set(state.slots) != set(optimizer.slots):
        raise ConfigError(
            f"{given} holds {', '.join(state.slots) or 'no slots'}, but {optimizer.name} continues from "
            f"{', '.join(optimizer.slots)}; give the --optimizer that its config.json names."
        )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "not there" if shape is None else str(list(shape))


def _mesh(config: RunConfig, info: StrategyInfo, compiled_cores: int) -> Mesh:
    if compiled_cores and config.devices is None and config.mesh is None:
        config = dataclasses.replace(config, devices=compiled_cores)
    mesh = config.as_mesh(info.axes)
    if not info.axes and mesh.size > 1:
        raise ConfigError(
            f"{config.framework}:{info.name} runs on one device, not on {mesh.size}; "
            f"for more choose from: {', '.join(row.name for row in framework_info(config.framework).rows if row.axes)}."
        )
    return mesh


def check_options(framework: str, info: StrategyInfo, options: dict[str, Scalar]) -> dict[str, Scalar]:
    """Reads a row's own options.

    Args:
        framework: Of the row.
        info: The row.
        options: As asked for; text is read as the type that the row declares.

    Raises:
        ConfigError: The row has no such option; the message names the row that does.
    """
    fields = {field.name for field in dataclasses.fields(info.options)}
    values: dict[str, Scalar] = {}
    for name, value in options.items():
        if name not in fields:
            raise foreign_option(framework, info, name)
        values[name] = read_value(info.options, name, value) if isinstance(value, str) else value
    return values


def foreign_option(framework: str, info: StrategyInfo, name: str) -> ConfigError:
    """The error for an option that a row does not have: it names the rows that do."""
    spelled = name.replace("_", "-")
    owners = [
        f"{other}:{row.name}"
        for other in FRAMEWORKS
        for row in framework_info(other).rows
        if name in {field.name for field in dataclasses.fields(row.options)}
    ]
    if owners:
        return ConfigError(f"--{spelled} is an option of {', '.join(owners)}, not of {framework}:{info.name}.")
    fields = [field for field in RunConfig.__dataclass_fields__ if field not in ("options", "techniques")]
    own = [field.name for field in dataclasses.fields(info.options)]
    return unknown("option", f"--{spelled}", [f"--{field.replace('_', '-')}" for field in [*fields, *own]])


def _check_batch(batch_size: int, mesh: Mesh, micro_batches: int) -> None:
    shards = mesh.axis("data") * mesh.axis("shard") * micro_batches
    if batch_size % shards:
        below, above = batch_size // shards * shards, (batch_size // shards + 1) * shards
        sizes = f"{below} or {above}" if below else f"{above}"
        parts = f"{mesh.size} devices" if micro_batches == 1 else f"{mesh.size} devices x {micro_batches} micro-batches"
        raise ConfigError(f"global batch {batch_size} does not divide among {parts}; use --batch-size {sizes}.")
