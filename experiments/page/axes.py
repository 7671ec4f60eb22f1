"""Scales: the position of a value on an axis, in percent since figures have any width, and the round values of its ticks."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence

from samestep.experiments.printing.text import UNITS, common_unit, short

_MOST_TICKS = 6
_MOST_RATIO = 8.0
"""The largest ratio of the values of a linear axis."""


@dataclasses.dataclass(frozen=True)
class AxisScale:
    """A scale.

    Attributes:
        low: The value at its start.
        high: The value at its end.
        spell: Writes a value.
        is_log: Whether equal distances are equal ratios.
        at: The values of its ticks; by default round values.
    """

    low: float
    high: float
    spell: Callable[[float], str]
    is_log: bool = False
    at: tuple[float, ...] = ()

    @functools.cached_property
    def _start_and_factor(self) -> tuple[float, float]:
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        return low, 100 / (high - low)

    def place(self, value: float) -> float:
        """Returns the position of a value in percent, to a hundredth, which is a tenth of a pixel in the widest figure."""
        return round(self.places([value])[0], 2)

    def places(self, values: Iterable[float]) -> list[float]:
        """Returns the positions of values in percent, not rounded."""
        start, factor = self._start_and_factor
        if self.is_log:
            return [factor * (math.log(max(value, self.low)) - start) for value in values]
        return [factor * (value - start) for value in values]

    def described(self, name: str) -> dict[str, str]:
        """Returns attributes that state how values are placed, for programs that read the figure.

        Args:
            name: The name of the axis: "x" or "y".
        """
        kind = "log" if self.is_log else "linear"
        return {f"data-{name}": f"{self.low!r} {self.high!r}", f"data-{name}-scale": kind}

    @property
    def ticks(self) -> list[float]:
        """Returns the values of its ticks."""
        if self.at:
            return list(self.at)
        if self.is_log:
            first, last = math.floor(math.log10(self.low) + 1e-9), math.ceil(math.log10(self.high) - 1e-9)
            step = -(-(last - first) // _MOST_TICKS) or 1
            digits = (1, 2, 5) if last - first <= 2 else (1,)
            found = [digit * 10.0**power for power in range(first, last + 1, step) for digit in digits]
        else:
            step = round_step((self.high - self.low) / _MOST_TICKS)
            found = [step * number for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [tick for tick in found if self.low <= tick * (1 + 1e-9) and tick <= self.high * (1 + 1e-9)]


def linear(values: Iterable[float], spell: Callable[[float], str], from_zero: bool = True) -> AxisScale:
    """Returns an axis on which equal distances are equal differences.

    Args:
        values: The values to show.
        spell: Writes a value.
        from_zero: Whether the axis starts at zero, as it must for bars.
    """
    values = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = (0.0 if from_zero else min(values)), max(values)
    if high <= low:
        high = low + (abs(low) or 1.0)
    margin = 0.02 * (high - low)
    return AxisScale(low if from_zero else low - margin, high + margin, spell)


def logarithmic(values: Iterable[float], spell: Callable[[float], str]) -> AxisScale:
    """Returns an axis of whole decades.

    Args:
        values: The values to show; those that are not above zero are left out.
        spell: Writes a value.
    """
    values = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return AxisScale(10.0**low, 10.0 ** max(high, low + 1), spell, is_log=True)


def fitting(values: Sequence[float], spell: Callable[[float], str]) -> AxisScale:
    """Returns a linear axis from zero, or a logarithmic one if a linear one would crowd the small values.

    Args:
        values: The values to show.
        spell: Writes a value.
    """
    positive = [value for value in values if value > 0]
    is_wide = bool(positive) and max(positive) > _MOST_RATIO * min(positive)
    if not is_wide:
        return linear(values, spell)
    return AxisScale(min(positive) / 1.3, max(positive) * 1.3, spell, is_log=True)


def in_bytes(values: Sequence[float]) -> tuple[AxisScale, str]:
    """Returns an axis of bytes from zero, and its unit."""
    unit = common_unit(values)
    return multiplied(values, 1 / 1024 ** UNITS.index(unit)), unit


def multiplied(values: Sequence[float], factor: float) -> AxisScale:
    """Returns an axis from zero whose ticks are round numbers, and are written, in another unit.

    Args:
        values: The values to show.
        factor: What a value is multiplied by in that unit.
    """
    whole = linear([factor * value for value in values], spell_tick)
    at = tuple(tick / factor for tick in whole.ticks)
    return AxisScale(whole.low / factor, whole.high / factor, lambda value: spell_tick(factor * value), at=at)


def spell_tick(value: float) -> str:
    """Returns a round number as text: 0, 0.5, 20, 1k, 2.5M."""
    return re.sub(r"\.?0+(?=\D?$)", "", short(value)) if "." in short(value) else short(value)


def round_step(step: float) -> float:
    """Returns the least 1, 2 or 5 times a power of ten that is not below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * (1 - 1e-9))
