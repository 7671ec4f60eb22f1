"""Turns a request into a run: fills in every default and refuses everything impossible, without starting anything."""

import dataclasses

from samestep.common.axes.used import check_split
from samestep.common.catalog import read_options, strategies_of, strategy_info
from samestep.common.errors import ConfigError, unknown
from samestep.common.features.used import refuse_features, switched, takes_shares
from samestep.common.flags import FieldValues, check_fields, flags, spell_flag, spell_flags
from samestep.common.frameworks import ORACLE_FRAMEWORK
from samestep.common.mesh import Mesh
from samestep.common.optimizer import check_optimizer, read_optimizer
from samestep.common.request import MAX_DEVICES, MAX_PREDICTED_DEVICES, Launch, RunConfig
from samestep.common.strategy import Run, StrategyInfo
from samestep.common.techniques import Techniques
from samestep.common.techniques.used import counts_devices, spell_exchanges, used
from samestep.common.workload.table import resolve
from samestep.common.workload.workload import Workload

_MADE = ("strategy", "workload", "optimizer", "mesh", "batch_size", "steps", "options", "weights")
_SAME = tuple(field.name for field in dataclasses.fields(Run) if field.name not in _MADE)
"""The fields that a run takes from its request unchanged."""


def parse(config: RunConfig) -> Run:
    """Makes a run from a request; every run that is started is made here.

    Args:
        config: The request; None stands for a default.

    Raises:
        ConfigError: The request is wrong.
        Unavailable: The package with the data is not installed.
    """
    run = _read(config, MAX_DEVICES)
    if run.workload.source:
        raise ConfigError(
            f"{run.workload.name} can only be predicted: samestep predict --workload {run.workload.name}; to train, size "
            "one of ours, as in synthetic-gpt+layers=12+width=768."
        )
    if run.batch_size > (examples := run.workload.data.num_examples()):
        raise ConfigError(
            f"global batch {run.batch_size} is more than the {examples} examples there are; use --batch-size {examples} "
            "or less."
        )
    return run


def parse_prediction(config: RunConfig, weights: str | None = None) -> Run:
    """Makes a run that is only predicted: it may have many more devices or a published model, and its data are not read.

    Args:
        config: The request; None stands for a default.
        weights: One of KEPT_WEIGHTS, or None.

    Raises:
        ConfigError: The request is wrong.
    """
    if weights is not None and config.dtype != "float32":
        raise ConfigError(f"--weights {weights} has master weights in float32; leave out --dtype {config.dtype}.")
    run = dataclasses.replace(_read(config, MAX_PREDICTED_DEVICES), weights=weights)
    for technique in used(run.techniques):
        technique.refuse(run)
    return run


def _read(config: RunConfig, most_devices: int) -> Run:
    """Fills in the defaults, and refuses what arithmetic alone can refuse."""
    check_fields(config)
    check_fields(config.techniques)
    if config.bandwidth is not None or config.save_every is not None:
        _check_words(config)
    if not isinstance(config.options, dict):
        raise ConfigError(f"options is {config.options!r}, not an object of names and values.")
    info = strategy_info(config.framework, config.strategy)
    if config.dtype not in info.dtypes:
        raise ConfigError(
            f"{config.framework}:{info.name} trains in {' or '.join(info.dtypes)}, not in {config.dtype}; "
            f"give --dtype {info.dtypes[0]}."
        )
    _check_techniques(config, info)
    options = read_options(config.framework, info, config.options)
    mesh = _mesh(config, info, info.compiled_cores(options), most_devices)
    if config.model is None:
        workload = resolve(config.workload, config.data)
    else:
        from samestep.common.workload.user_workload import user_workload  # here: runs of our own models do without

        workload = user_workload(config.model, config.described, config.data, config.seed)
        _check_framework(config, workload)
    workload = dataclasses.replace(workload, model=switched(workload.model, config))
    _check_features(config, info, workload)
    run = Run(
        **{name: getattr(config, name) for name in _SAME},
        strategy=info,
        workload=workload,
        optimizer=read_optimizer(config, workload),
        mesh=mesh,
        batch_size=config.batch_size or workload.batch_size,
        steps=config.steps or workload.steps,
        options=options,
    )
    return _checked(run)


def _checked(run: Run) -> Run:
    """Returns the run with what its techniques fill in, unless one of them or its row refuses it."""
    for technique in used(run.techniques):
        run = dataclasses.replace(run, techniques=technique.fill_in(run))
    techniques = (technique.refuse for technique in used(run.techniques))
    for check in (_check_devices, *techniques, _check_batch, check_optimizer, refuse_features, check_split):
        check(run)
    return run


def _check_words(config: RunConfig) -> None:
    """Refuses a bandwidth, or an interval at which a run saves, that is spelled wrongly."""
    from samestep.common.flag_words import (  # here, like the next one: few requests have them
        read_bandwidth,
        read_interval,
    )

    if config.bandwidth is not None:
        read_bandwidth(config.bandwidth)
    if config.save_every is not None:
        read_interval(config.save_every)


def _most_devices(config: RunConfig) -> int:
    """Returns how many devices an elastic run begins with; 0 for any other run."""
    if config.elastic is None:
        return 0
    from samestep.common.flag_words import read_devices

    return read_devices(config.elastic)[1]


def _check_techniques(config: RunConfig, info: StrategyInfo) -> None:
    """Refuses techniques that the strategy cannot take, and two that both exchange gradients."""
    for technique, why in info.refuses.items():
        field = flags(Techniques).get(technique)
        if field is not None and getattr(config.techniques, technique) != field.default:
            name = f"{config.framework}:{info.name}"
            flag, *_ = spell_flags(Techniques(**{technique: getattr(config.techniques, technique)}))
            raise ConfigError(f"{name} does not take {flag}: {why}; leave out {flag}.")
    if len(own := spell_exchanges(config.techniques)) > 1:
        raise ConfigError(f"{' and '.join(own)} both exchange gradients in their own way; leave out one of them.")


def _check_features(config: RunConfig, info: StrategyInfo, workload: Workload) -> None:
    """Refuses features of a model that the strategy cannot take."""
    features = flags(workload.model)
    for name, why in info.refuses.items():
        if name in features and getattr(workload.model, name) != features[name].default:
            raise ConfigError(
                f"{config.framework}:{info.name} does not take +{name}=: {why}; leave it out, or choose another strategy."
            )


def as_config(run: Run, launch: Launch) -> RunConfig:
    """Returns the complete request from which a run is parsed, which `config.json` holds.

    Args:
        run: The run.
        launch: How it is started.
    """
    given: FieldValues = dataclasses.asdict(launch)
    given |= {name: getattr(run, name) for name in (*_SAME, "batch_size", "steps")}
    if (folder := run.workload.model.facts.folder) is not None:
        given["described"] = folder
    return RunConfig(
        **given,
        strategy=run.strategy.name,
        workload=run.workload.name,
        devices=run.mesh.size,
        mesh=str(run.mesh),
        optimizer=run.optimizer.name,
        learning_rate=run.optimizer.learning_rate,
        options=dataclasses.asdict(run.options),
    )


def arguments(config: RunConfig) -> list[str]:
    """Returns the flags that repeat a complete request, except those that say where its files go."""
    info = strategy_info(config.framework, config.strategy)
    default = _mesh(dataclasses.replace(config, mesh=None), info, 0, MAX_DEVICES)
    left_out = {name for name, field in flags(config).items() if field.metadata["place"]}
    left_out |= set() if config.model is None else {"workload"}
    left_out |= {"mesh"} if config.mesh == str(default) else {"devices"}
    left_out |= {"devices"} if config.devices == 1 or config.elastic is not None else set()
    named = [word for name in _NAMED if name not in left_out for word in (spell_flag(name), getattr(config, name))]
    options = read_options(config.framework, info, config.options)
    return [*named, *spell_flags(config, {*left_out, *_NAMED}), *spell_flags(options), *spell_flags(config.techniques)]


_NAMED = ("framework", "strategy", "workload")
"""The flags that are repeated even if they have their defaults."""


def _check_framework(config: RunConfig, workload: Workload) -> None:
    """Refuses a user's model in a framework for which their file has no builder."""
    built_by = workload.model.facts.frameworks
    if built_by and config.framework not in built_by:
        if config.framework == ORACLE_FRAMEWORK:
            raise ConfigError(f"the oracle has no model of {config.model}; its reference is its own run on one device.")
        raise ConfigError(
            f"{config.model} has no model for {config.framework}; add `{config.framework}=` to its samestep.Model, or choose "
            f"a strategy of {' or '.join(built_by)}."
        )


def _mesh(config: RunConfig, info: StrategyInfo, compiled_cores: int, most: int) -> Mesh:
    name = f"{config.framework}:{info.name}"
    if config.mesh is None:
        devices = config.devices or _most_devices(config) or compiled_cores or 1
        mesh = Mesh((((*info.axes, "data")[0], devices),))
    else:
        mesh = Mesh.parse(config.mesh)
        if config.devices not in (None, mesh.size):
            raise ConfigError(
                f"--devices {config.devices} disagrees with --mesh {mesh} ({mesh.size} devices); give one of them."
            )
        for axis, _ in mesh.axes:
            if info.axes and axis not in info.axes:
                raise unknown("mesh axis", axis, info.axes, f"{name} does not split along it.")
    if mesh.size > most:
        raise ConfigError(f"--mesh {mesh} has {mesh.size} devices; give at most {most}.")
    return mesh


def _check_devices(run: Run) -> None:
    """Refuses several devices for a row that runs on one, unless the oracle computes what each of several would compute."""
    has_shares = run.framework == ORACLE_FRAMEWORK and (bool(counts_devices(run.techniques)) or takes_shares(run))
    if not run.strategy.axes and run.mesh.size > 1 and not has_shares:
        others = ", ".join(row.name for row in strategies_of(run.framework) if row.axes)
        raise ConfigError(f"{run.name} runs on one device, not on {run.mesh.size}; for more choose from: {others}.")


def _check_batch(run: Run) -> None:
    parts = run.passes
    shards = run.mesh.replicas * parts
    if run.batch_size % shards:
        below, above = run.batch_size // shards * shards, (run.batch_size // shards + 1) * shards
        sizes = f"{below} or {above}" if below else f"{above}"
        among = f"{run.mesh.size} devices" if parts == 1 else f"{run.mesh.size} devices x {parts} micro-batches"
        raise ConfigError(f"global batch {run.batch_size} does not divide among {among}; use --batch-size {sizes}.")
