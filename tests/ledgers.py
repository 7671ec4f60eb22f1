"""What was measured, held against what was predicted, in both frameworks."""

import dataclasses
from collections import Counter
from collections.abc import Iterable

import pytest

from samestep.common.ledger import Send, in_order
from samestep.common.runtime.records import RunResult


def keeps_what_was_predicted(result: RunResult) -> None:
    """Activations, to the byte, wherever they are predicted; of experts, what the measured routing of a whole step says."""
    if _is_routed_by_pass(result):
        return
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert predicted.activations_bytes in (None, row.activations_bytes)


def sends_what_was_predicted(result: RunResult) -> None:
    """Operations, counts, bytes and phases; of torch, which runs them one after the other, also group and order."""
    assert result.exchanges == result.predicted.exchanges
    if result.framework == "torch":
        told = without_bytes if _is_routed_by_pass(result) else tuple
        assert told(result.processes[0].sends) == told(result.predicted.sends)
    elif result.predicted.sends:
        assert bytes_by_phase(result.processes[0].sends) == bytes_by_phase(result.predicted.sends)


def keeps_and_sends_what_was_predicted(result: RunResult) -> None:
    """The same of a step whose exchange is another one, with what each device keeps for it, and with the bytes on the wire."""
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert row.residuals_bytes == predicted.residuals_bytes
    sent = sum(row.sent_bytes_per_step for row in result.processes if row.sent_bytes_per_step is not None)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)


def bytes_by_phase(sends: Iterable[Send]) -> Counter[tuple[str, str]]:
    """(phase, operation) -> bytes."""
    found = Counter[tuple[str, str]]()
    for send in sends:
        found[send.phase, send.operation] += send.bytes
    return found


def without_bytes(sends: Iterable[Send]) -> tuple[Send, ...]:
    """Sends as if each had no bytes: where a router decides these, two that follow each other may happen to have as many."""
    return in_order(dataclasses.replace(send, bytes=0) for send in sends)


def _is_routed_by_pass(result: RunResult) -> bool:
    """Whether a router decides what each of several passes sends and keeps, of which only that of the whole step is measured."""
    techniques, is_routed = result.config.techniques, result.framework == "torch" and "expert" in result.mesh
    return is_routed and (techniques.accumulation_steps > 1 or techniques.recompute)
