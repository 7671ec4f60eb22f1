"""The costs of runs of growing size as a table: a row per run, and below each axis how its costs grow."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from samestep.experiments.printing.text import github

MEBIBYTE = 2**20


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a run.

    Attributes:
        axis: The axis of growth.
        size: The size along that axis.
        launcher_seconds: The processor seconds of the launcher.
        started_seconds: The processor seconds of all processes that the launcher started, including the oracle's.
        launcher_bytes: The peak memory of the launcher.
        worker_bytes: The largest peak memory of a worker.
        started_bytes: The largest peak memory of any process that was started, including the oracle's.
        disk_bytes: The size of the run directory.
        reached: The last step that was judged; 0 if none was.
        wall_seconds: The seconds from start to end.
        error: Why the run has no cost; "" if it has one.
    """

    axis: str
    size: int
    launcher_seconds: float = 0.0
    started_seconds: float = 0.0
    launcher_bytes: int = 0
    worker_bytes: int = 0
    started_bytes: int = 0
    disk_bytes: int = 0
    reached: int = 0
    wall_seconds: float = 0.0
    error: str = ""


def table(found: Sequence[Cost]) -> str:
    """Returns a table with a row per run, and below each axis how its costs grow.

    Args:
        found: The runs.
    """
    rows = []
    for axis in dict.fromkeys(each.axis for each in found):
        own = sorted((each for each in found if each.axis == axis), key=lambda each: each.size)
        rows += [_row(each) for each in own]
        done = [each for each in own if not each.error]
        rows += [[f"{axis}: exponent", "", *(exponent(done, get) for get in _COSTS), ""]] if len(done) > 2 else []
    headers = [
        "axis",
        "size",
        "launcher s",
        "started s",
        "launcher MiB",
        "worker MiB",
        "largest MiB",
        "disk KiB",
        "judged to",
    ]
    return github(headers, rows)


_COSTS: Sequence[Callable[[Cost], float]] = (
    lambda cost: cost.launcher_seconds,
    lambda cost: cost.started_seconds,
    lambda cost: cost.launcher_bytes,
    lambda cost: cost.worker_bytes,
    lambda cost: cost.started_bytes,
    lambda cost: cost.disk_bytes,
)


def _row(cost: Cost) -> list[str]:
    if cost.error:
        return [cost.axis, f"{cost.size:,}", cost.error, "", "", "", "", "", ""]
    seconds = (f"{each:,.1f}" for each in (cost.launcher_seconds, cost.started_seconds))
    memory = (f"{each / MEBIBYTE:,.0f}" for each in (cost.launcher_bytes, cost.worker_bytes, cost.started_bytes))
    return [cost.axis, f"{cost.size:,}", *seconds, *memory, f"{cost.disk_bytes / 1024:,.0f}", str(cost.reached)]


def exponent(found: Sequence[Cost], get: Callable[[Cost], float]) -> str:
    """Returns the slope of the logarithms between the last two sizes, measured from the first; "0" without growth.

    Args:
        found: The runs of an axis, smallest first.
        get: Returns the cost to look at.
    """
    first, *_, last, most = found
    less, more = (get(each) - get(first) for each in (last, most))
    if more <= 0.05 * get(first) or less <= 0:
        return "0"
    return f"{math.log(more / less) / math.log((most.size - first.size) / (last.size - first.size)):.2f}"
