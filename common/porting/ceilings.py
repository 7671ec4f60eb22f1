"""Activations that stop at a number in one implementation: where no number of the batch comes that far, outputs agree."""

from collections.abc import Iterator

from samestep.common.porting.case import PortCase
from samestep.common.porting.model_trace import LayerCall

_SIX = ("ReLU6", "relu6")
_RELU = ("ReLU", "relu")


def notes_on_ceilings(case: PortCase) -> Iterator[str]:
    """Yields a note for each activation that is configured to stop at another number than its counterpart, or at none.

    Args:
        case: Both implementations, whose outputs agree.
    """
    for layer in case.layers:
        if layer.source.kind in (*_SIX, *_RELU) and layer.target.kind in (*_SIX, *_RELU):
            one, other = (_ceiling(call) for call in (layer.source, layer.target))
            if one != other:
                said = ["without end" if each is None else f"up to {each:g}" for each in (one, other)]
                yield f"{layer.names}: the first grows {said[0]}, the second {said[1]}, and no number came that far"


def _ceiling(call: LayerCall) -> float | None:
    if call.kind in _SIX:
        return 6.0
    given = call.settings.get("max_value")
    return float(given) if isinstance(given, int | float) else None
