"""What was measured, held against what was predicted, in both frameworks."""

from samestep.common.runtime.records import RunResult


def keeps_what_was_predicted(result: RunResult) -> None:
    """Activations exactly; at most, where a backward pass by the inputs already drops what the weights do not need."""
    is_bound = result.config.options.get("schedule") == "interleaved_zero_bubble"
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        if predicted.activations_bytes is not None:
            assert row.activations_bytes is not None
            assert row.activations_bytes <= predicted.activations_bytes
            assert row.activations_bytes == predicted.activations_bytes or is_bound


def sends_what_was_predicted(result: RunResult) -> None:
    """Operations, counts and bytes; of torch, which runs them one after the other, also phase, group and order."""
    assert result.exchanges == result.predicted.exchanges
    if result.framework == "torch":
        assert result.processes[0].sends == result.predicted.sends
