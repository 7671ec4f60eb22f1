"""What was measured, held against what was predicted, in both frameworks."""

from samestep.common.runtime.records import RunResult


def keeps_what_was_predicted(result: RunResult) -> None:
    """Activations, to the byte, wherever they are predicted."""
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert predicted.activations_bytes in (None, row.activations_bytes)


def sends_what_was_predicted(result: RunResult) -> None:
    """Operations, counts and bytes; of torch, which runs them one after the other, also phase, group and order."""
    assert result.exchanges == result.predicted.exchanges
    if result.framework == "torch":
        assert result.processes[0].sends == result.predicted.sends
