"""Whether a result is whole, and whether the files beside it are of the same run."""

import dataclasses
import functools
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.catalog import read_options, strategy_info
from samestep.common.errors import ERRORS, ConfigError, unknown
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.flags import check_fields
from samestep.common.request import RunConfig
from samestep.common.runtime.possible import find_huge_number, why_impossible

if TYPE_CHECKING:
    from samestep.common.runtime.records import RunResult

_ELSEWHERE = ("out", "described")
"""Of a request: where its files were, which may have been moved."""
_NOT_ALWAYS_FINITE = ("metric_value",)
"""There is no AUC of examples of one class."""
_REPEATED = ("framework", "strategy", "workload", "mesh", "dtype", "seed", "optimizer")
"""What a result has twice, in its request as well."""


def check_request(directory: Path, config: object) -> None:
    """Refuses a result whose directory has the request of another run.

    Args:
        directory: The run directory; it may hold the result alone.
        config: The request in the result, as JSON.

    Raises:
        ConfigError: It is not that of `config.json`, or that cannot be read.
    """
    path = directory / "config.json"
    if not os.path.lexists(path):
        return
    try:
        asked = read_json(path)
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}; the result beside it may be of another run.") from None
    if not (isinstance(asked, Mapping) and isinstance(config, Mapping)):
        raise ConfigError(f"{path} is {_short(asked)}, not the request of a run.")
    for name in dict.fromkeys([*asked, *config]):
        if name not in _ELSEWHERE and asked.get(name) != config.get(name):
            there, here = _short(asked.get(name)), _short(config.get(name))
            raise ConfigError(
                f"{path} is of another run than the result beside it: {name} is {there}, and {here} there."
            )


def check_result(path: Path, values: object, result: "RunResult") -> None:
    """Refuses a result that holds what no run writes, or that contradicts itself.

    Args:
        path: The file of the result.
        values: The result as JSON.
        result: The result that was made of them.

    Raises:
        ConfigError: It does; the message says where.
    """
    odd = filter(None, (find_huge_number(values), why_impossible(result)))
    for wrong in (*_damages(values, result, ""), *_contradictions(result), *odd):
        raise ConfigError(f"{path} is not a result: {wrong}.")


def _contradictions(result: "RunResult") -> Iterator[str]:
    """Finds what in a result contradicts the rest of it."""
    config, taken = result.config, len(result.losses)
    try:
        check_asked(config)
    except ConfigError as error:
        yield f"its request is wrong: {str(error).removesuffix('.')}"
    for name in _REPEATED:
        if (own := getattr(result, name)) != (asked := getattr(config, name)):
            yield f"its {name} is {_short(own)}, and that of its request {_short(asked)}"
    if result.compiled is not None:
        return
    if not result.processes:
        yield "it has no devices"
    if taken != result.steps - result.first_step or not taken or result.parity.steps > taken:
        yield f"it has {taken} losses of steps {result.first_step} to {result.steps}, and {result.parity.steps} judged"
    if (config.steps, config.batch_size) != (result.steps, result.global_batch_size):
        own, asked = f"{result.steps} of {result.global_batch_size}", f"{config.steps} of {config.batch_size}"
        yield f"it has {own} examples as steps, and its request {asked}"


def check_asked(config: RunConfig) -> None:
    """Refuses a request that nobody could have made, as far as that can be seen without its data.

    Raises:
        ConfigError: A value is not of its type or not valid, or there is no such strategy or option.
    """
    check_fields(config)
    check_fields(config.techniques)
    if not isinstance(config.options, dict):
        raise ConfigError(f"options is {_short(config.options)}, not an object of names and values.")
    read_options(config.framework, strategy_info(config.framework, config.strategy), config.options)


def check_error(directory: Path) -> None:
    """Refuses an `error.json` that says nothing of how the run ended.

    Args:
        directory: The directory of a run without a result; it need not hold an error.

    Raises:
        ConfigError: It is damaged.
    """
    path = directory / "error.json"
    if not os.path.lexists(path):
        return
    try:
        values = read_json(path)
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}; how the run ended is not known.") from None
    if not isinstance(values, dict) or not all(
        isinstance(values.get(name), str) for name in ("type", "role", "message")
    ):
        raise ConfigError(f"{path} is {_short(values)}, not an error; how the run ended is not known.")
    if values["type"] not in ERRORS:
        raise unknown(f"type of error in {path}", values["type"], ERRORS)


def _damages(values: object, made: object, place: str) -> Iterator[str]:
    """Finds what no run writes in some values: unknown fields, and numbers that are not finite."""
    if isinstance(values, dict):
        known = _names(type(made)) if dataclasses.is_dataclass(made) and not isinstance(made, type) else None
        for name, each in values.items():
            if known is not None and name not in known:
                yield f"it has an unknown field {_short(f'{place}{name}')}"
            elif name not in _NOT_ALWAYS_FINITE and isinstance(each, (float, list, dict)):
                yield from _damages(each, getattr(made, name) if known is not None else None, f"{place}{name}.")
    elif isinstance(values, list) and not _are_finite(values):
        members = made if isinstance(made, list | tuple) else [None] * len(values)
        for number, (each, member) in enumerate(zip(values, members, strict=True)):
            if not math.isfinite(each) if type(each) is float else isinstance(each, (list, dict)):
                yield from _damages(each, member, f"{place}{number}.")
    elif isinstance(values, float) and not math.isfinite(values):
        yield f"its {place.removesuffix('.')} is {values}"


def _are_finite(values: list[object]) -> bool:
    """Whether a list holds finite floats and nothing else, as the losses of a run are: that is seen without a loop."""
    return set(map(type, values)) == {float} and all(map(math.isfinite, values))  # pyrefly: ignore


@functools.cache
def _names(record: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(record))  # pyrefly: ignore


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ..."
