"""Prints how rows scale: a table for strong scaling, one for weak, and the serial share."""

from collections.abc import Iterator, Sequence

from samestep.common.errors import count, percent
from samestep.common.judging.scaling_fit import LEAST_POINTS
from samestep.experiments.comparing.quantities import SPEED
from samestep.experiments.comparing.scaling import EXPECTED, Scaling, ScalingPoint
from samestep.experiments.comparing.speeds import spell_confounds, spell_ratio
from samestep.experiments.printing.column_table import Column, explained
from samestep.experiments.printing.host_table import spell_sum
from samestep.experiments.printing.text import fill, paragraphs, sharing, short

_WHOLE = 1.005
"""The share from which a percentage is more than 100 % once it is rounded."""


def _percent(share: float | None) -> str:
    return "" if share is None else percent(share)


Line = tuple[Scaling, ScalingPoint]
"""A line of the table: a row, and one of its numbers of devices."""
COLUMNS: tuple[Column[Line], ...] = (
    Column("strategy", lambda line: line[0].name if line[1] is line[0].points[0] else ""),
    Column("devices", lambda line: str(line[1].devices)),
    Column(
        "hosts",
        lambda line: str(len(line[1].by_host) or 1) if any(each.by_host for each in line[0].points) else "",
        drop_priority=2,
    ),
    Column(
        "within hosts KiB",
        lambda line: spell_sum([(each.within_bytes, each.predicted_within_bytes) for each in line[1].by_host]),
        "bytes of a step over TCP (predicted) from each process to others of its host, over all hosts",
        4,
    ),
    Column(
        "between hosts KiB",
        lambda line: spell_sum([(each.sent_bytes, each.predicted_sent_bytes) for each in line[1].by_host]),
        "bytes of a step over TCP (predicted) from host to host",
        3,
    ),
    Column(SPEED.name, lambda line: "" if line[1].rate is None else short(line[1].rate)),
    Column("speed-up", lambda line: _speedup(line[1])),
    Column(
        "[95 %]", lambda line: _interval(line[1]), "[the 95 % confidence interval of its mean over the rounds]", 3, True
    ),
    Column("efficiency", lambda line: _percent(line[0].efficiency(line[1])), "the speed-up per device", 2),
    Column(
        "in flight",
        lambda line: _percent(line[1].communication),
        "the time that gradients are in flight in the first steps, as a share of the median step",
        4,
    ),
    Column(
        "(exposed)",
        lambda line: f"({_percent(line[1].exposed)})" if line[1].exposed is not None else "",
        "(of it, the time outside of the backward pass)",
        4,
        True,
    ),
    Column(
        "textbook",
        lambda line: "" if line[1].textbook is None else f"{line[1].textbook:g}x",
        "the speed-up of data parallelism on 2, 4 and 8 GPUs in textbooks",
        1,
    ),
)


def write_scaling(found: Sequence[Scaling]) -> str:
    """Writes the text for people; "" if no row has several numbers of devices.

    Args:
        found: The rows with several numbers of devices.
    """
    kinds = sharing((each.kind, each) for each in found)
    return paragraphs(*(_write(kinds[kind]) for kind in EXPECTED if kind in kinds))


def _write(found: Sequence[Scaling]) -> str:
    lines = [(each, point) for each in found for point in each.points]
    return paragraphs(
        fill(title_of(found)), explained(COLUMNS, lines, [*map(explain_fit, found), *_explain_excess(lines)])
    )


def _explain_excess(lines: Sequence[Line]) -> Iterator[str]:
    """Yields why a share in the table is more than the whole, if one is."""
    if any((point.communication or 0.0) > _WHOLE for _, point in lines):
        yield "in flight for more than 100 % of a step: the first steps, where this is measured, take longer than the median one"
    if any((row.efficiency(point) or 0.0) > _WHOLE for row, point in lines):
        yield (
            "an efficiency of more than 100 %: the rate grows faster than the number of devices, as when the part of each fits "
            "into a faster memory, or by chance; see its interval"
        )


def title_of(found: Sequence[Scaling]) -> str:
    """Returns the title of rows with the same kind of scaling, with a note if there are not enough cores."""
    kind = found[0].kind
    what = {"strong": "the global batch stays the same", "weak": "the batch of each device stays the same"}
    short_of = sorted({(p.devices, p.cores) for each in found for p in each.points if "shared-cores" in p.confounds})
    shared = [f"{devices} devices share {count(cores, 'core')}" for devices, cores in short_of]
    warning = f" {'; '.join(shared)}: no speed-up can be told from that." if shared else ""
    return f"{kind.capitalize()} scaling: {what[kind]}.{warning}"


def _speedup(point: ScalingPoint) -> str:
    if point.confounds:
        return spell_confounds(point.confounds)
    return "" if point.speedup is None else spell_ratio(point.speedup.ratio)


def _interval(point: ScalingPoint) -> str:
    if point.speedup is None or point.speedup.low is None or point.speedup.high is None:
        return ""
    return f"[{spell_ratio(point.speedup.low)}..{spell_ratio(point.speedup.high)}]"


def explain_fit(found: Scaling) -> str:
    """Returns a sentence on the serial share, with a limit of the speed-up if the rounds support one."""
    fitted = [point for point in found.points if point.rate and not point.confounds]
    if found.serial_share is None:
        how = (
            "and the speed-up of the others says why they do not count"
            if len(found.points) >= LEAST_POINTS
            else "as in --devices 1,2,4"
        )
        return (
            f"{found.name}: the serial share is not fitted to {count(len(fitted), 'number')} of devices; "
            f"it takes at least {LEAST_POINTS}, {how}"
        )
    whose = {"strong": "Amdahl's", "weak": "Gustafson's"}[found.kind]
    if any(point.speedup and point.speedup.ratio < 1 for point in found.points):
        return f"{found.name}: more devices are slower here, which {whose} formula cannot describe"
    counts = ", ".join(str(point.devices) for point in fitted)
    low, high = found.serial_interval or (None, None)
    between = " (one round, so no interval)" if low is None else f" [{percent(low, 1)}..{percent(high or 0, 1)}]"
    told = f"{found.name}: {percent(found.serial_share, 1)}{between} of a step is serial"
    told += f", by {whose} formula fitted to {counts} devices"
    if not low or found.kind != "strong":
        return told
    return f"{told}, so no number of devices is more than {spell_ratio(1 / low)} as fast as one"
