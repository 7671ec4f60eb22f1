"""What was measured, held against the cost model, to the byte."""

from collections.abc import Iterable

from samestep.common.ledger import Exchange, Footprint
from samestep.common.runtime.records import RunResult
from tests.ledgers import keeps_what_was_predicted


def bytes_of(rows: Iterable[Footprint]) -> list[tuple[int, int, int, int]]:
    """Parameters at rest and at their peak, gradients, optimizer; one row per device."""
    return [(r.params_bytes, r.params_peak_bytes, r.gradients_bytes, r.optimizer_bytes) for r in rows]


def by_name(exchanges: Iterable[Exchange]) -> dict[str, tuple[int, int]]:
    return {each.name: (each.count_per_step, each.bytes_per_step) for each in exchanges}


def sent_bytes(result: RunResult) -> float:
    return sum(row.sent_bytes_per_step for row in result.processes)


def obeys_its_law(result: RunResult) -> None:
    """Footprints and exchanges exactly, every send of the first rank in order; the wire within 1 % and 2 KB a rank."""
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())
    keeps_what_was_predicted(result)
    assert by_name(result.exchanges) == by_name(result.predicted.exchanges)
    assert result.processes[0].sends == result.predicted.sends
    predicted = result.predicted.sent_bytes_per_step
    left = sent_bytes(result) - predicted
    assert abs(left) <= 0.01 * predicted + 2048 * len(result.processes), f"{left:+} of {predicted} bytes"
