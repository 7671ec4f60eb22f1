"""Looks up strategies without importing their frameworks."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable, unknown
from samestep.common.flags import Scalar, flags, read_fields, spell_flag
from samestep.common.mesh import AXES
from samestep.common.request import FRAMEWORKS, RunConfig, StrategyOptions
from samestep.common.strategy import Run, StrategyInfo
from samestep.common.workload.saved import SavedLists


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameworkInfo:
    """The part of a framework's catalogue that describes the framework itself.

    Attributes:
        module: The module to look for; found without importing it.
        extra: The extra of this package that installs it, or "" if it is always installed.
        environment: The environment variables to set before its import.
        strategies: Its strategies, in the order of tables. The row of a strategy is `ROW` in the file of its name in the
            catalogue, which is only read when it is needed.
        preload: The modules that a fork server imports before it forks.
        preload_for_models: The modules that it imports before it first forks a worker with a user's model.
        available: Raises Unavailable for what this machine lacks for a run under any of its strategies.
        reference_row: The row that takes the steps of any other on one device.
        title: Its name as people write it.
        saved: (run, whether linear layers save their inputs without a cast) -> the lists of what a run saves between the
            forward and the backward pass; None if there is no list for its model.
    """

    module: str
    title: str
    extra: str
    environment: Mapping[str, str]
    strategies: tuple[str, ...]
    preload: tuple[str, ...]
    preload_for_models: tuple[str, ...] = ()
    available: Callable[[Run], None] = lambda run: None
    reference_row: str = "single"
    saved: Callable[[Run, bool], SavedLists | None] = lambda run, as_it_comes: None


def framework_info(framework: str) -> FrameworkInfo:
    """Returns the catalogue of a framework, read without importing the framework.

    Raises:
        ConfigError: There is no such framework.
    """
    if framework not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    return importlib.import_module(FRAMEWORKS[framework] + ".catalog").FRAMEWORK


def mirror_folder(framework: str) -> Path:
    """Returns the folder of a framework's mirror, found without importing it."""
    spec = importlib.util.find_spec(FRAMEWORKS[framework])
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def strategy_info(framework: str, strategy: str) -> StrategyInfo:
    """Returns the catalogue row of a strategy.

    Args:
        framework: The framework's key in FRAMEWORKS.
        strategy: The name of the row.

    Raises:
        ConfigError: There is no such row; the message says which framework has it, if one does.
    """
    names = framework_info(framework).strategies
    if strategy in names:
        return importlib.import_module(row_module(framework, strategy)).ROW
    owners = frameworks_with(strategy)
    owner = f"It is a strategy of {owners[0]}: {owners[0]}:{strategy}." if owners else ""
    raise unknown(f"{framework} strategy", strategy, names, owner=owner)


def row_module(framework: str, strategy: str) -> str:
    """Returns the name of the catalogue's module that holds the row of a strategy.

    Args:
        framework: The framework's key in FRAMEWORKS.
        strategy: The name of the row.
    """
    return f"{FRAMEWORKS[framework]}.catalog.{strategy}"


def frameworks_with(strategy: str) -> list[str]:
    """Returns the frameworks that have a strategy of this name."""
    return [framework for framework in FRAMEWORKS if strategy in framework_info(framework).strategies]


def require(framework: str) -> str:
    """Makes sure that a framework is installed.

    Returns:
        The name of its module.

    Raises:
        Unavailable: The framework is not installed; the message has the install line.
    """
    info = framework_info(framework)
    if importlib.util.find_spec(info.module) is None:
        raise Unavailable(f"{info.module} is not installed: pip install 'samestep[{info.extra}]'")
    return info.module


def require_row(framework: str, strategy: str) -> None:
    """Makes sure that a framework is installed, and everything else that one of its rows needs.

    Args:
        framework: The framework's key in FRAMEWORKS.
        strategy: The name of the row.

    Raises:
        ConfigError: There is no such row.
        Unavailable: Something is not installed; the message has the install line.
    """
    require(framework)
    package = strategy_info(framework, strategy).package
    if package and importlib.util.find_spec(package) is None:
        raise Unavailable(f"{package} is not installed: pip install 'samestep[{package}]'")


def lacks(framework: str, strategy: str) -> str:
    """Returns what has to be installed before a strategy can run here; "" if nothing.

    Args:
        framework: A key of FRAMEWORKS.
        strategy: The name of the strategy.
    """
    try:
        require_row(framework, strategy)
    except Unavailable as error:
        return str(error)
    return ""


def cells() -> list[str]:
    """Returns every strategy of every framework, as `torch:ddp`, without reading its row."""
    return [f"{framework}:{name}" for framework in FRAMEWORKS for name in framework_info(framework).strategies]


def strategies_of(framework: str) -> list[StrategyInfo]:
    """Returns every row of a framework's catalogue."""
    return [strategy_info(framework, name) for name in framework_info(framework).strategies]


def catalogue() -> list[tuple[str, StrategyInfo]]:
    """Returns every strategy of every framework, as (framework, row)."""
    return [(framework, row) for framework in FRAMEWORKS for row in strategies_of(framework)]


def read_options(framework: str, info: StrategyInfo, values: dict[str, Scalar]) -> StrategyOptions:
    """Reads a strategy's own options.

    Args:
        framework: The framework of the strategy.
        info: Its row.
        values: The options that the user asked for; text is read as the type that the row declares.

    Raises:
        ConfigError: The strategy has no such option (the message names those that do), or a value is wrong.
    """
    for name in values:
        if name not in flags(info.options):
            raise foreign_option(framework, info, name)
    return read_fields(info.options, values)


def foreign_option(framework: str, info: StrategyInfo, name: str, others: Iterable[str] = ()) -> ConfigError:
    """Returns the error for an option that a strategy does not have: it names the strategies that do, if any.

    Args:
        framework: The framework of the strategy.
        info: The strategy's row.
        name: The name of the option, as that of its field.
        others: The names that are valid where it was given, in addition to the strategy's own options.
    """
    if name in flags(RunConfig):
        return ConfigError(
            f"{name} is not an option of {framework}:{info.name}; give it as a flag of samestep run, {spell_flag(name)}."
        )
    owners = [f"{other}:{row.name}" for other, row in catalogue() if name in flags(row.options)]
    if owners:
        return ConfigError(f"{spell_flag(name)} is an option of {', '.join(owners)}, not of {framework}:{info.name}.")
    if name in AXES:
        return ConfigError(
            f"{name} is an axis of the mesh; write it as --mesh {name}=2, or in a cell as +mesh={name}=2."
        )
    return unknown(f"option of {framework}:{info.name}", name, [*flags(info.options), *others])
