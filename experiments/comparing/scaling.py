"""How rows scale with their number of devices: speed-up, efficiency, serial share, and the textbook's speed-up."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from samestep.common.cell import Cell
from samestep.common.judging.confounds import split_allowed
from samestep.common.judging.scaling_fit import TEXTBOOK, amdahl_share, gustafson_share, share_interval
from samestep.common.judging.speed_comparison import Difference, predict_speed
from samestep.common.mesh import Mesh
from samestep.common.runtime.records import HostBytes, RunResult
from samestep.experiments.comparing.confound_report import confounds
from samestep.experiments.comparing.row import Row
from samestep.experiments.comparing.speeds import Rounds, compare_rounds, examples_per_second
from samestep.experiments.printing.text import marked

EXPECTED = {"strong": ("cores",), "weak": ("cores", "batch", "order")}
"""The confounds that are meant to differ between two numbers of devices."""
DATA_PARALLEL = ("data", "shard")
"""The axes along which devices split a batch, to which the textbooks' speed-up of data parallelism applies."""


@dataclasses.dataclass(frozen=True)
class ScalingPoint:
    """The measurement of a row on one number of devices.

    Attributes:
        devices: The number of devices.
        batch_size: The GLOBAL batch size.
        cores: The number of cores that they share.
        rate: Examples per second, the median over the rounds; None if nothing was timed.
        speedup: The speed-up over the fewest devices, round by round; None for the fewest, and if confounds prevent it.
        confounds: The confounds that prevent a speed-up.
        communication: The time that gradients are in flight, which is measured in the first steps, as a share of the median step;
            None if the strategy does not measure it.
        exposed: The part of it outside of the backward pass.
        textbook: The speed-up by the formulas of textbooks.
        by_host: The bytes that each host sends and receives in a step; empty if there is one host.
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
    by_host: tuple[HostBytes, ...] = ()


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A row with several numbers of devices.

    Attributes:
        cell: The cell of the row, without its devices.
        kind: "strong": the global batch stays the same. "weak": the batch of each device does.
        points: The points by the number of devices, the fewest first.
        serial_share: The serial share of a step, by Amdahl's formula, or for weak scaling by Gustafson's; None with too few
            points to fit.
        serial_interval: The share's 95 % confidence interval over the rounds; None with a single round.
        emulation: What ran instead of the strategy's own API.
    """

    cell: Cell
    kind: str
    points: tuple[ScalingPoint, ...]
    serial_share: float | None
    serial_interval: tuple[float, float] | None = None
    emulation: str = ""

    @property
    def name(self) -> str:
        """The cell, with a mark if it is emulated."""
        return marked(self.cell, self.emulation)

    def efficiency(self, point: ScalingPoint) -> float | None:
        """Returns the speed-up divided by the factor by which the number of devices grew.

        Args:
            point: A point of this row.
        """
        return point.speedup.ratio * self.points[0].devices / point.devices if point.speedup else None


def find_scaling(rows: Iterable[Row], allowed: Collection[str]) -> tuple[Scaling, ...]:
    """Finds the rows that differ only in their number of devices, and in their batch if it grows in proportion.

    Args:
        rows: The rows that have results.
        allowed: The confounds that the user allowed.
    """
    families: dict[Cell, dict[tuple[int, int], Rounds]] = {}
    for row in rows:
        first, *_ = row.results
        if not (row.configuration.is_oracle or first.compiled):
            sizes = first.config.devices or 1, first.global_batch_size
            families.setdefault(row.configuration.without(("devices", "batch_size")), {})[sizes] = row.results
    found = []
    for cell, family in families.items():
        batches = sorted({batch for _, batch in family})
        if len({(batch / devices) for devices, batch in family}) == 1:
            found.append((cell, "weak", family))
            continue
        for batch in batches:
            own = {sizes: rounds for sizes, rounds in family.items() if sizes[1] == batch}
            found.append((cell.extended({"batch_size": batch} if batches[1:] else {}), "strong", own))
    return tuple(_scaling(cell, kind, family, allowed) for cell, kind, family in found if len(family) > 1)


def _scaling(cell: Cell, kind: str, family: Mapping[tuple[int, int], Rounds], allowed: Collection[str]) -> Scaling:
    rows = [family[sizes] for sizes in sorted(family)]
    base, *more = rows
    passes = {*allowed, *EXPECTED[kind]}
    stops = {id(row): tuple(e.name for e in split_allowed(confounds(row, base), passes)[0]) for row in more}
    speedups = compare_rounds({id(row): (row, base) for row in more if not stops[id(row)]})
    points = tuple(_point(row, speedups.get(id(row)), stops.get(id(row), ()), base) for row in rows)
    fitted = [(row, point) for row, point in zip(rows, points, strict=True) if point.rate and not point.confounds]
    share = _serial_share(kind, {point.devices: point.rate for _, point in fitted})
    rounds = zip(*(examples_per_second(row) for row, _ in fitted), strict=False)
    each = [
        _serial_share(kind, {point.devices: rate for (_, point), rate in zip(fitted, rates, strict=True)})
        for rates in rounds
    ]
    interval = share_interval([found for found in each if found is not None])
    return Scaling(cell, kind, points, share, interval, base[0].emulation)


def _serial_share(kind: str, rates: Mapping[int, float | None]) -> float | None:
    """Returns the serial share by the formula for one kind of scaling, from the examples per second by number of devices."""
    known = {devices: rate for devices, rate in rates.items() if rate}
    if kind == "strong":
        return amdahl_share({devices: 1 / rate for devices, rate in known.items()})
    return gustafson_share(known)


def _point(row: Rounds, speedup: Difference | None, stops: tuple[str, ...], base: Rounds) -> ScalingPoint:
    first, speed = row[0], predict_speed(examples_per_second(row))
    devices, is_data_parallel = first.config.devices or 1, Mesh.parse(first.mesh).only_axis in DATA_PARALLEL
    return ScalingPoint(
        devices,
        first.global_batch_size,
        first.cores,
        speed.median if speed else None,
        speedup,
        stops,
        *_communication(first),
        TEXTBOOK.get(devices) if is_data_parallel and base[0].config.devices == 1 else None,
        first.by_host,
    )


def _communication(result: RunResult) -> tuple[float | None, float | None]:
    """Returns two shares of a step, as means over ranks: gradients in flight, and those that do not overlap the backward pass."""
    measured = [row.measures for row in result.processes if "communication_seconds" in row.measures]
    if not measured or not result.step_seconds_median or result.config.devices == 1:
        return None, None
    whole = sum(each["communication_seconds"] for each in measured) / len(measured)
    hidden = sum(each.get("overlap_seconds", 0.0) for each in measured) / len(measured)
    return whole / result.step_seconds_median, (whole - hidden) / result.step_seconds_median
