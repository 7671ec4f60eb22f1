"""A cell, which names the configuration of a run. Only this module reads and writes `framework:strategy+option=value`."""

import dataclasses
from collections.abc import Collection, Mapping

from samestep.common.catalog import cells, foreign_option, frameworks_with, read_options, strategy_info
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import Scalar, flags, join_spelling, read_fields, split_list, split_spelling
from samestep.common.frameworks import FRAMEWORKS
from samestep.common.request import ORACLE, RunConfig
from samestep.common.strategy import StrategyInfo
from samestep.common.techniques import Techniques

CELL_FIELDS = tuple(name for name, field in flags(RunConfig).items() if field.metadata["in_cell"])
"""The fields of a request that a cell may set."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A strategy, and what a row sets for it: its options, techniques, its mesh, fields of a request, and workload sizes.

    No name belongs to two of these kinds, so a cell keeps them as one list, in the order in which the user wrote them.

    Attributes:
        framework: A key of FRAMEWORKS.
        strategy: The name of the strategy in the catalogue.
        settings: Pairs of name and value, as text. Everything that is not named is taken from the rest of the request.
    """

    framework: str
    strategy: str
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str, default_framework: str | None = None) -> "Cell":
        """Reads `framework:strategy+option=value+technique=value+devices=4+width=64+mesh=axis=size,axis=size`.

        Args:
            text: The spelling; the framework may be left out if only one has the strategy.
            default_framework: The framework that is meant if several have the strategy.

        Raises:
            ConfigError: The text is not spelled like this, or there is no such framework or strategy.
        """
        name, settings = split_spelling(text)
        framework, colon, strategy = name.partition(":")
        if not colon:
            framework, strategy = _owner(text, name, default_framework), name
        return cls(framework, strategy_info(framework, strategy).name, tuple(settings.items()))

    @classmethod
    def of(cls, config: RunConfig) -> "Cell":
        """Returns the cell of a complete request, with the options, techniques and mesh that are not the defaults."""
        info = strategy_info(config.framework, config.strategy)
        chosen = [(info.options, config.options), (Techniques, dataclasses.asdict(config.techniques))]
        given = {n: v for owner, values in chosen for n, v in values.items() if v != flags(owner)[n].default}
        if config.mesh != f"{(*info.axes, 'data')[0]}={config.devices}":
            given["mesh"] = config.mesh
        return cls(config.framework, config.strategy, tuple((name, str(value)) for name, value in given.items()))

    def __str__(self) -> str:
        return join_spelling(self.name, dict(self.settings))

    @property
    def name(self) -> str:
        """The strategy without settings, such as `torch:ddp`."""
        return f"{self.framework}:{self.strategy}"

    @property
    def info(self) -> StrategyInfo:
        """The strategy's row of the catalogue."""
        return strategy_info(self.framework, self.strategy)

    @property
    def is_oracle(self) -> bool:
        """Returns whether it is the oracle, with which the others are compared."""
        return self.name == ORACLE

    def check_strategy(self) -> None:
        """Refuses the oracle where a strategy is to be shown.

        Raises:
            ConfigError: It is the oracle.
        """
        if self.is_oracle:
            raise ConfigError(
                f"{self} is the reference, on one device; name a strategy, as in torch:ddp or tf:mirrored."
            )

    def get(self, name: str) -> str | None:
        """Returns the value that the cell sets for a name; None if it sets none."""
        return dict(self.settings).get(name)

    def extended(self, settings: Mapping[str, object]) -> "Cell":
        """Returns the cell with more settings."""
        return dataclasses.replace(self, settings=(*self.settings, *((n, str(v)) for n, v in settings.items())))

    def without(self, names: Collection[str]) -> "Cell":
        """Returns the cell without its settings of some names."""
        return dataclasses.replace(self, settings=tuple(pair for pair in self.settings if pair[0] not in names))

    def can_set(self, name: str, base: RunConfig) -> bool:
        """Returns whether the cell could set a name that it does not set yet.

        Args:
            name: The name of an option, a technique, a field of a request or a size of the workload.
            base: The rest of the request.
        """
        info = self.info
        if self.get(name) is not None:
            return False
        if name == "devices":
            return bool(info.axes) and self.get("mesh") is None
        if name == "dtype":
            return len(info.dtypes) > 1
        if name in ("threads", "bandwidth"):
            return not self.is_oracle
        if name in (*CELL_FIELDS, *flags(Techniques)):
            return name not in info.refuses
        return name in flags(info.options) or name in size_names(base)

    def apply_to(self, base: RunConfig, options: Mapping[str, Scalar] | None = None) -> RunConfig:
        """Returns the request for the cell.

        Args:
            base: The rest of the request.
            options: Options of the strategy that were given in addition to the cell.

        Raises:
            ConfigError: There is no such setting, or no such value of it.
        """
        given, info = dict(self.settings), self.info
        fields = {name: given.pop(name) for name in CELL_FIELDS if name in given}
        techniques: dict[str, Scalar] = {name: given.pop(name) for name in flags(Techniques) if name in given}
        mesh = given.pop("mesh", base.mesh)
        own = {name: given.pop(name) for name in flags(info.options) if name in given}
        workload = base.workload
        if given and (sizes := {name: given.pop(name) for name in size_names(base) if name in given}):
            from samestep.common.workload.table import resize  # here: --help imports no NumPy

            workload = resize(workload, sizes)
        for name in given:
            others = (*CELL_FIELDS, "mesh", *size_names(base), *flags(Techniques))
            raise foreign_option(self.framework, info, name, others)
        return dataclasses.replace(
            base,
            framework=self.framework,
            strategy=self.strategy,
            mesh=mesh,
            **{name: getattr(read_fields(RunConfig, {**fields}), name) for name in fields},
            workload=workload,
            options=dataclasses.asdict(read_options(self.framework, info, {**own, **(options or {})})),  # pyrefly: ignore[bad-argument-type]
            techniques=read_fields(Techniques, dataclasses.asdict(base.techniques) | techniques),
        )


def parse_cells(flag: str, text: str) -> list[Cell]:
    """Reads cells that are separated by commas; a comma before `axis=` belongs to the mesh of a cell.

    Args:
        flag: The flag that gave them, for messages.
        text: As in `torch:ddp,torch:hybrid+mesh=pipe=2,tensor=2,tf:mirrored`.

    Raises:
        ConfigError: A cell is empty, or names a strategy that does not exist.
    """
    cells = split_list(text, f"{flag} '{text}'", "cell", "torch:ddp,tf:mirrored", r",(?!\s*\w+=)")
    return [Cell.parse(cell) for cell in cells]


def size_names(base: RunConfig) -> list[str]:
    """Returns the sizes of a request's workload that can be set; a user's model has none."""
    from samestep.common.workload import table  # here: --help imports no NumPy

    return [] if base.model else table.size_names(base.workload, base.data)


def _owner(text: str, strategy: str, default: str | None) -> str:
    """Returns the framework of a strategy that was named without one."""
    owners = frameworks_with(strategy)
    if not owners:
        every = dict.fromkeys(cell.partition(":")[2] for cell in cells())
        raise unknown("strategy", strategy, every, "Write it as in torch:ddp.", _kind_of(strategy))
    if len(owners) > 1 and default not in owners:
        raise ConfigError(
            f"'{strategy}' is a strategy of several frameworks; give {' or '.join(f'{o}:{text}' for o in owners)}."
        )
    return default if default in owners else owners[0]


def _kind_of(word: str) -> str:
    """Returns a sentence on what a word names that is not a strategy; "" if it names nothing."""
    if word in FRAMEWORKS:
        return "It is a framework."
    from samestep.common.workload.published import PUBLISHED  # here, like the next: --help imports no NumPy
    from samestep.common.workload.table import WORKLOADS

    return f"It is a workload: --workload {word}." if word in (*WORKLOADS, *PUBLISHED) else ""
