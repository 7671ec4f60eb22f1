"""The figures of a result as columns for programs: raw numbers, named as in `result.json`, with their units."""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping

from samestep.common.flags import Scalar
from samestep.common.runtime.records import RunResult
from samestep.experiments.printing.misses import misses

_LEFT_OUT = ("config", "status")
"""Fields of a result that make no columns: `command` repeats the configuration, and the row has a status of its own."""
_OVER_DEVICES: Mapping[str, Callable[[RunResult], Scalar]] = {
    "devices": lambda r: r.config.devices,
    "state_bytes_per_device": lambda r: max((row.state_bytes for row in r.processes), default=None),
    "predicted_state_bytes_per_device": lambda r: max(
        (row.state_bytes for row in r.predicted.footprints), default=None
    ),
    "sent_bytes_per_step": lambda r: sum(row.sent_bytes_per_step for row in r.processes),
    "missed_predictions": lambda r: ", ".join(f"{name} {error}" for name, error in misses(r).items()),
    "peak_rss_bytes": lambda r: max((row.peak_rss_bytes for row in r.processes), default=None),
}


def figures(result: RunResult | None) -> dict[str, Scalar]:
    """The columns of one result: its plain fields, those of its parts, and sums over devices; each None without a result."""
    over_devices = {name: None if result is None else value(result) for name, value in _OVER_DEVICES.items()}
    return _plain_fields(RunResult, result) | over_devices


_hints = functools.cache(typing.get_type_hints)


def _plain_fields(kind: type, value: object, prefix: str = "") -> dict[str, Scalar]:
    """The numbers and words that a dataclass holds, itself or in a dataclass of its own: `parity_steps`."""
    columns = {}
    for name, declared in _hints(kind).items():
        union = isinstance(declared, types.UnionType)
        kinds = {each for each in (typing.get_args(declared) if union else [declared]) if each is not types.NoneType}
        inner = None if value is None else getattr(value, name)
        if name in _LEFT_OUT:
            continue
        if kinds <= {str, int, float, bool}:
            columns[prefix + name] = inner
        elif dataclasses.is_dataclass(part := kinds.pop()):
            columns |= _plain_fields(part, inner, f"{prefix}{name}_")
    return columns
