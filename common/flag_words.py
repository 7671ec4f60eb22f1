"""Parses the values of some flags: how often, how many, how fast."""

import dataclasses
import re

from samestep.common.errors import ConfigError
from samestep.common.request import MAX_DEVICES


@dataclasses.dataclass(frozen=True)
class Interval:
    """How often a run saves: every so many steps, or every so many seconds.

    Attributes:
        steps: The steps; None if seconds count.
        seconds: The seconds; None if steps count.
    """

    steps: int | None = None
    seconds: float | None = None


def read_interval(text: str) -> Interval:
    """Reads how often a run saves, as in 50 or 30s.

    Raises:
        ConfigError: It is neither steps nor seconds.
    """
    found = re.fullmatch(r"([0-9]{1,9})|([0-9]{1,6}(?:\.[0-9]{1,3})?)s", text)
    steps, seconds = (int(found[1] or 0), float(found[2] or 0)) if found else (0, 0.0)
    if not (steps or seconds):
        raise ConfigError(f"--save-every is {text!r}; give a number of steps, as in 50, or of seconds, as in 30s.")
    return Interval(steps=steps) if steps else Interval(seconds=seconds)


def read_devices(text: str) -> tuple[int, int]:
    """Reads the fewest and the most devices of a run, as in 1:4.

    Raises:
        ConfigError: The text is no such range.
    """
    found = re.fullmatch(r"([0-9]{1,5}):([0-9]{1,5})", text)
    least, most = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 0 < least <= most <= MAX_DEVICES:
        raise ConfigError(f"--elastic is {text!r}; give the fewest and the most devices, as in 1:4.")
    return least, most


_BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_LEAST_BITS, _MOST_BITS = 10**5, 10**11


def read_bandwidth(text: str) -> int:
    """Reads the bandwidth of a link, as in 200mbit.

    Returns:
        Bits per second.

    Raises:
        ConfigError: The text is no bandwidth, or one that no link can have.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([kmg]bit)", text)
    bits_per_second = round(float(found[1]) * _BITS[found[2]]) if found else 0
    if not _LEAST_BITS <= bits_per_second <= _MOST_BITS:
        raise ConfigError(
            f"--bandwidth is {text!r}; give what each link carries, from 100kbit to 100gbit, as in 200mbit."
        )
    return bits_per_second
