"""The bytes that each host of a run sent and received in a step, with their predictions."""

from collections.abc import Sequence

from samestep.common.runtime.records import HostBytes, RunResult
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.column_table import Column, table
from samestep.experiments.printing.text import common_unit, in_unit

MEANING = "bytes of a step over TCP (predicted), from each process to others of its host, and between hosts"


def host_columns(found: Sequence[HostBytes]) -> list[Column[HostBytes]]:
    """Returns the columns of a table of hosts, in one unit.

    Args:
        found: The bytes of each host.
    """
    unit = common_unit(size for each in found for size in (each.within_bytes, each.sent_bytes, each.received_bytes))
    return [
        Column("host", lambda row: row.host),
        Column(f"within it {unit}", lambda row: spell_sum([(row.within_bytes, row.predicted_within_bytes)], unit)),
        Column(f"to others {unit}", lambda row: spell_sum([(row.sent_bytes, row.predicted_sent_bytes)], unit)),
        Column(
            f"from others {unit}", lambda row: spell_sum([(row.received_bytes, row.predicted_received_bytes)], unit)
        ),
    ]


def spell_sum(sizes: Sequence[tuple[float, float | None]], unit: str = "KiB") -> str:
    """Returns the bytes that one or several hosts send in a step, with the prediction; "" without hosts.

    Args:
        sizes: The measured and the predicted bytes of each host.
        unit: One of `UNITS`; it is not written.
    """
    if not sizes:
        return ""
    measured, predicted = zip(*sizes, strict=True)
    expected = "" if None in predicted else f" ({in_unit(sum(filter(None, predicted)), unit)})"
    return in_unit(sum(measured), unit) + expected


def host_table(result: RunResult, width: int | None) -> str:
    """Returns the table of a run's hosts, and the meaning of its numbers.

    Args:
        result: The result of a run on several hosts.
        width: The characters of a line; None leaves nothing out.
    """
    return f"{table(host_columns(result.by_host), result.by_host, width)}\n\n* {MEANING}"


def explain_between(rows: Sequence[MeasuredRow]) -> str:
    """Returns a line on the bytes that the hosts of each row sent to each other; "" if no row has several hosts."""
    said = []
    for row in (row for row in rows if row.result.by_host):
        sizes = [(each.sent_bytes, each.predicted_sent_bytes) for each in row.result.by_host]
        unit = common_unit(sum(filter(None, column)) for column in zip(*sizes, strict=True))
        said.append(f"{row.name} {spell_sum(sizes, unit)} {unit}")
    return f"sent between hosts in a step (predicted): {', '.join(said)}"
