"""What was measured, held against what was predicted, in both frameworks."""

from samestep.common.runtime.records import RunResult


def keeps_what_was_predicted(result: RunResult) -> None:
    """Activations, to the byte, wherever they are predicted."""
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert predicted.activations_bytes in (None, row.activations_bytes)
