"""Checks that a result is complete, and that the files next to it belong to the same run."""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.catalog import read_options, strategy_info
from samestep.common.errors import ERRORS, ConfigError, unknown
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.flags import check_fields
from samestep.common.request import MAX_PREDICTED_DEVICES, RunConfig
from samestep.common.steps.log import METRICS, Log, read_log

if TYPE_CHECKING:
    from samestep.common.runtime.records import RunResult

_ELSEWHERE = ("out", "described")
"""The fields of a request that say where its files were, which may have been moved."""
_NOT_ALWAYS_THERE = "metric_value"
"""The field that may be NaN, since there is no AUC for examples of a single class."""
_MOST_WHOLE = 2**63
"""Larger than any count of bytes. Whole numbers in JSON have no limit, but programs that read them do."""
_MOST_REAL = 1e100
"""Larger than any measured number."""
_REPEATED = ("framework", "strategy", "workload", "mesh", "dtype", "seed", "optimizer")
"""The fields of a result that its request has as well."""


def check_request(directory: Path, config: object) -> None:
    """Refuses a result whose directory holds the request of another run.

    Args:
        directory: The run directory; it may hold nothing but the result.
        config: The request in the result, as JSON.

    Raises:
        ConfigError: The request differs from `config.json`, or that file cannot be read.
    """
    path = directory / "config.json"
    if not os.path.lexists(path):
        return
    try:
        asked = read_json(path)
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}; the result next to it may be of another run.") from None
    if not (isinstance(asked, Mapping) and isinstance(config, Mapping)):
        raise ConfigError(f"{path} is {_short(asked)}, not the request of a run.")
    for name in dict.fromkeys([*asked, *config]):
        if name not in _ELSEWHERE and asked.get(name) != config.get(name):
            there, here = _short(asked.get(name)), _short(config.get(name))
            raise ConfigError(
                f"{path} is of another run than the result next to it: {name} is {there}, and {here} in the result."
            )


def check_losses(directory: Path, first_step: int, losses: tuple[float, ...]) -> Log | None:
    """Refuses a run whose `metrics.jsonl` does not hold the losses of the run.

    Args:
        directory: The run directory.
        first_step: The number of the first loss.
        losses: One loss per step.

    Returns:
        The log; None if there is none to check.

    Raises:
        ConfigError: The log is missing, damaged, of another run, or not complete.
    """
    path = directory / METRICS
    lies_alone = not (os.path.lexists(path) or os.path.lexists(directory / "config.json"))
    if lies_alone or not losses:  # a step that was only compiled has none
        return None
    log = read_log(directory)
    found = log.losses
    if found != losses[: len(found)] or (found and log.first != first_step):
        raise ConfigError(f"{path} is of another run: its losses are not those of the result.")
    if len(found) < len(losses):
        raise ConfigError(f"{path} has {len(found)} of the {len(losses)} losses; it was changed afterwards.")
    return log


def check_result(path: Path, values: object, result: "RunResult") -> None:
    """Refuses a result that holds what no run writes, or that contradicts itself.

    Args:
        path: The file of the result.
        values: The result as JSON.
        result: The result that was made from them.

    Raises:
        ConfigError: The result is wrong; the message says where.
    """
    impossible = (said for said, holds in _RULES.items() if not holds(result))
    for wrong in itertools.chain(_damages(values, result, ""), _contradictions(result), impossible):
        raise ConfigError(f"{path} is not a result: {wrong}.")


def _contradictions(result: "RunResult") -> Iterator[str]:
    """Yields what in a result contradicts the rest of it."""
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
        own, asked = f"{result.steps} steps of {result.global_batch_size}", f"{config.steps} of {config.batch_size}"
        yield f"it has {own} examples, and its request {asked}"


def check_asked(config: RunConfig) -> None:
    """Refuses an invalid request, as far as it can be checked without its data.

    Raises:
        ConfigError: A value is not of its type or not valid, or there is no such strategy or option.
    """
    check_fields(config)
    check_fields(config.techniques)
    if not isinstance(config.options, dict):
        raise ConfigError(f"options is {_short(config.options)}, not an object of names and values.")
    read_options(config.framework, strategy_info(config.framework, config.strategy), config.options)


def check_error(directory: Path) -> None:
    """Refuses an `error.json` that does not say how the run ended.

    Args:
        directory: The directory of a run without a result; it need not hold an error.

    Raises:
        ConfigError: The file is damaged.
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
    """Yields what no run writes: unknown fields, and numbers that cannot have been measured."""
    if isinstance(values, dict):
        known = _names(type(made)) if dataclasses.is_dataclass(made) and not isinstance(made, type) else None
        for name, each in values.items():
            if known is not None and name not in known:
                yield f"it has an unknown field {_short(f'{place}{name}')}"
            elif not (name == _NOT_ALWAYS_THERE and isinstance(each, float) and math.isnan(each)):
                yield from _damages(each, getattr(made, name) if known is not None else None, f"{place}{name}.")
    elif isinstance(values, list) and not _are_losses(values):
        members = made if isinstance(made, list | tuple) else [None] * len(values)
        for number, (each, member) in enumerate(zip(values, members, strict=True)):
            yield from _damages(each, member, f"{place}{number}.")
    elif isinstance(values, float) and not abs(values) < _MOST_REAL:
        yield f"its {place.removesuffix('.')} is {values}, which cannot have been measured"
    elif isinstance(values, int) and abs(values) >= _MOST_WHOLE:
        yield f"its {place.removesuffix('.')} is larger than 2^{math.log2(_MOST_WHOLE):.0f}"


def _are_losses(values: list[object]) -> bool:
    """Returns whether a list holds only plausible real numbers, as the losses of a run do; there may be a million of them."""
    return set(map(type, values)) == {float} and all(abs(each) < _MOST_REAL for each in values)  # pyrefly: ignore


@functools.cache
def _names(record: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(record))  # pyrefly: ignore


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ..."


_COMPLETE = ("mesh", "steps", "batch_size", "optimizer", "learning_rate")
"""The fields that are always set in a parsed request."""
_RULES: Mapping[str, Callable[["RunResult"], object]] = {
    "it predicts no device": lambda r: r.predicted.footprints,
    "config is not complete": lambda r: None not in [getattr(r.config, name) for name in _COMPLETE],
    "machine has no processor": lambda r: "cpu" in r.machine,
    "examples_per_second is not positive": lambda r: r.examples_per_second is None or r.examples_per_second.median > 0,
    "it predicts more devices than there are": lambda r: 0 < _devices(r) <= MAX_PREDICTED_DEVICES,
    "parity has a deviation below 0": lambda r: (r.parity.max_relative_loss or 0) >= 0,
    "parity has a bound that is not above 0": lambda r: r.parity.loss_bound is None or r.parity.loss_bound > 0,
}
"""Message -> the condition whose failure it reports."""


def _devices(result: "RunResult") -> int:
    counts = [footprint.count for footprint in result.predicted.footprints]
    return sum(counts) if min(counts) > 0 else 0
