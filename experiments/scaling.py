"""How rows scale with their number of devices: speed-up, efficiency, what stays serial, and what the textbook says."""

import dataclasses
from collections.abc import Collection, Mapping

from samestep.common.evidence.comparison import Difference, predict_speed
from samestep.common.evidence.confounds import split_allowed
from samestep.common.evidence.scaling import TEXTBOOK, amdahl_share, gustafson_share
from samestep.common.runtime.records import RunResult
from samestep.experiments.lint import confounds
from samestep.experiments.speeds import Rounds, compare_rounds, examples_per_second

EXPECTED = {"strong": ("cores",), "weak": ("cores", "batch", "order")}
"""What differs by intention between two numbers of devices."""


@dataclasses.dataclass(frozen=True)
class Point:
    """One number of devices.

    Attributes:
        devices: How many.
        batch_size: GLOBAL.
        cores: That they share.
        rate: Examples per second, the median over the rounds; None if nothing was timed.
        speedup: Against the fewest devices, round by round; None for those themselves, and where confounds forbid it.
        confounds: What forbids it.
        communication: The share of a step in which gradients are in flight; None where the row does not measure it.
        exposed: The share in which nothing else goes on meanwhile.
        textbook: The speed-up that textbooks give.
    """

    devices: int
    batch_size: int
    cores: int
    rate: float | None
    speedup: Difference | None = None
    confounds: tuple[str, ...] = ()
    communication: float | None = None
    exposed: float | None = None
    textbook: float | None = None


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A row with several numbers of devices.

    Attributes:
        cell: Of the row, without its devices.
        kind: "strong": the global batch stays the same. "weak": the batch of each device does.
        points: By the number of devices, the fewest first.
        serial_share: Of a step, by Amdahl's formula, of weak scaling by Gustafson's; None with fewer than two points to fit.
        emulation: What ran instead of the strategy's own API.
    """

    cell: str
    kind: str
    points: tuple[Point, ...]
    serial_share: float | None
    emulation: str = ""

    @property
    def name(self) -> str:
        """The cell; what is emulated is marked."""
        return f"{self.cell} (emulated)" if self.emulation else self.cell

    def efficiency(self, point: Point) -> float | None:
        """The speed-up per device that was added.

        Args:
            point: Of this row.
        """
        return point.speedup and point.speedup.ratio * self.points[0].devices / point.devices


def find_scaling(rows: Mapping[str, Rounds], allowed: Collection[str]) -> tuple[Scaling, ...]:
    """Finds the rows that differ in nothing but their number of devices, and in their batch if that grows in proportion.

    Args:
        rows: Their results, one a round.
        allowed: The confounds that the user allowed.
    """
    families: dict[str, dict[tuple[int, int], Rounds]] = {}
    for cell, row in rows.items():
        if row[0].framework != "numpy" and not row[0].compiled:
            sizes = row[0].config.devices or 1, row[0].global_batch_size
            families.setdefault(_without(cell, "devices", "batch_size"), {})[sizes] = row
    found = []
    for cell, family in families.items():
        batches = sorted({batch for _, batch in family})
        if len({(batch / devices) for devices, batch in family}) == 1:
            found.append((cell, "weak", family))
        else:
            found += [
                (
                    cell + (f"+batch_size={batch}" if batches[1:] else ""),
                    "strong",
                    {k: v for k, v in family.items() if k[1] == batch},
                )
                for batch in batches
            ]
    return tuple(_scaling(cell, kind, family, allowed) for cell, kind, family in found if len(family) > 1)


def _without(cell: str, *names: str) -> str:
    """A cell without what it sets of some names."""
    first, *parts = cell.split("+")
    return "+".join([first, *(part for part in parts if part.partition("=")[0] not in names)])


def _scaling(cell: str, kind: str, family: Mapping[tuple[int, int], Rounds], allowed: Collection[str]) -> Scaling:
    rows = [family[sizes] for sizes in sorted(family)]
    base, *more = rows
    passes = {*allowed, *EXPECTED[kind]}
    stops = {id(row): tuple(e.name for e in split_allowed(confounds(row, base), passes)[0]) for row in more}
    speedups = compare_rounds({id(row): (row, base) for row in more if not stops[id(row)]})
    points = tuple(
        _point(row, speedups.get(id(row)), stops.get(id(row), ()), base[0].config.devices == 1) for row in rows
    )
    fitted = {p.devices: p.rate for p in points if p.rate and not p.confounds}
    if kind == "strong":
        share = amdahl_share({devices: points[0].batch_size / rate for devices, rate in fitted.items()})
    else:
        share = gustafson_share(fitted)
    return Scaling(cell, kind, points, share, base[0].emulation)


def _point(row: Rounds, speedup: Difference | None, stops: tuple[str, ...], has_one: bool) -> Point:
    first, speed = row[0], predict_speed(examples_per_second(row))
    communication, exposed = _communication(first)
    devices = first.config.devices or 1
    return Point(
        devices,
        first.global_batch_size,
        first.cores,
        speed and speed.median,
        speedup,
        stops,
        communication,
        exposed,
        TEXTBOOK.get(devices) if has_one else None,
    )


def _communication(result: RunResult) -> tuple[float | None, float | None]:
    """The share of a step in which gradients are in flight, and that in which nothing else goes on: the mean over ranks."""
    measured = [row.measures for row in result.processes if "communication_seconds" in row.measures]
    if not measured or not result.step_seconds_median or result.config.devices == 1:
        return None, None
    whole = sum(each["communication_seconds"] for each in measured) / len(measured)
    hidden = sum(each.get("overlap_seconds", 0.0) for each in measured) / len(measured)
    return whole / result.step_seconds_median, (whole - hidden) / result.step_seconds_median
