"""What a command line asks for: cells, and the request that is made of one and of the flags beside it."""

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NoReturn

from samestep.common.catalog import catalogue, frameworks_with, read_options, strategy_info
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import Scalar, flags, read_fields, spell_flag, split_spelling
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.cli.ending import check_environment, report_errors

CELL_FIELDS = tuple(name for name, field in flags(RunConfig).items() if field.metadata["in_cell"])
"""The fields of a request that a cell may set."""


def complete_cell(text: str, default: str | None = None) -> str:
    """Puts the framework before a strategy that was named without one.

    Args:
        text: A cell, or one without `framework:`, where only one framework has the strategy.
        default: The framework that is meant where several have it.

    Raises:
        ConfigError: No framework has it, or several have.
    """
    name = text.partition("+")[0]
    if ":" in name:
        return text
    owners = frameworks_with(name)
    if not owners:
        raise unknown("strategy", name, dict.fromkeys(row.name for _, row in catalogue()), "Write it as in torch:ddp.")
    if len(owners) > 1 and default not in owners:
        raise ConfigError(
            f"'{name}' is a strategy of several frameworks; give {' or '.join(f'{o}:{text}' for o in owners)}."
        )
    return f"{default if default in owners else owners[0]}:{text}"


def split_cells(flag: str, text: str) -> list[str]:
    """Reads cells that are separated by commas; a comma before `axis=` belongs to the mesh of a cell.

    Args:
        flag: Where they were given.
        text: As in `torch:ddp,torch:hybrid+mesh=pipe=2,tensor=2,tf:mirrored`.

    Raises:
        ConfigError: One is empty, or names a strategy that is not there.
    """
    cells = [cell.strip() for cell in re.split(r",(?!\s*\w+=)", text)]
    if not all(cells):
        raise ConfigError(f"{flag} '{text}' has an empty cell; name cells, as in torch:ddp,tf:mirrored.")
    return [complete_cell(cell) for cell in cells]


def read_request(cell: str, given: Mapping[str, Scalar]) -> RunConfig:
    """Makes a request of a cell and of what was given beside it.

    Args:
        cell: As in `torch:ddp+clip_norm=1`.
        given: Fields of RunConfig, of Techniques, and options of the strategy.

    Raises:
        ConfigError: Something is set in both, or there is no such option or value.
    """
    for name in split_spelling(cell)[1]:
        if name in given:
            raise ConfigError(f"{cell} and {spell_flag(name)} both set {name}; give it once.")
    own = {name: value for name, value in given.items() if name not in {**flags(RunConfig), **flags(Techniques)}}
    base = dataclasses.replace(read_fields(RunConfig, given), techniques=read_fields(Techniques, given))
    return apply_cell(cell, base, own)


def apply_cell(text: str, base: RunConfig, beside: Mapping[str, Scalar] | None = None) -> RunConfig:
    """Reads `framework:strategy+option=value+technique=value+devices=4+width=64+mesh=axis=size,axis=size`.

    What may be set in a cell: options of its strategy, techniques, the mesh, those fields of a request in which rows of a
    comparison may differ, and the sizes of the workload.

    Args:
        text: The cell; the framework may be left out where only one has the strategy.
        base: The rest of the request; what the cell does not name is the base's.
        beside: Options of the strategy that were given elsewhere.

    Raises:
        ConfigError: It is not spelled so, or there is no such framework, strategy, or name to be set.
    """
    name, given = split_spelling(complete_cell(text))
    framework, _, strategy = name.partition(":")
    info = strategy_info(framework, strategy)
    fields = {name: given.pop(name) for name in CELL_FIELDS if name in given}
    techniques: dict[str, Scalar] = {name: given.pop(name) for name in flags(Techniques) if name in given}
    mesh = given.pop("mesh", base.mesh)
    sizes = _take_sizes(given, flags(info.options), base)
    return dataclasses.replace(
        base,
        framework=framework,
        strategy=info.name,
        mesh=mesh,
        **{name: getattr(read_fields(RunConfig, {**fields}), name) for name in fields},
        **sizes,
        options=dataclasses.asdict(read_options(framework, info, {**given, **(beside or {})})),
        techniques=read_fields(Techniques, dataclasses.asdict(base.techniques) | techniques),
    )


def _take_sizes(given: dict[str, str], options: Container[str], base: RunConfig) -> dict[str, str]:
    """Takes the sizes of the workload out of what a cell sets; returns the workload that has them, if there are any."""
    if all(name in options for name in given):
        return {}
    from samestep.common.workload.table import resize  # here: --help imports no NumPy

    sizes = {name: given.pop(name) for name in size_names(base) if name in given and name not in options}
    return {"workload": resize(base.workload, sizes)} if sizes else {}


def size_names(base: RunConfig) -> list[str]:
    """The sizes of a request's workload that can be set; a user's own model has none."""
    from samestep.common.workload import table  # here: --help imports no NumPy

    return [] if base.model else table.size_names(base.workload, base.data)


def run_command(command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits; our own errors become one line and their exit code.

    Args:
        command: Takes the arguments, returns the exit code.
        arguments: The process's own, unless given.
    """
    # The oracle's products are small: a second thread would only wait for the first, and on a busy machine for long. NumPy
    # is not imported yet, and processes that train are told their number of threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with report_errors() as code:
        check_environment()
        code[0] = command(sys.argv[1:] if arguments is None else arguments)
    sys.exit(code[0])
