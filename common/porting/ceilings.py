"""Notes on activations whose upper limits differ: if no number of the batch reaches the limit, the outputs agree."""

from collections.abc import Iterator

from samestep.common.porting.case import PortCase
from samestep.common.porting.model_trace import LayerCall

_CLIPPING = ("hardtanh", "clamp", "clip", "clipbyvalue", "minimum")
"""Modules, functions of torch and operations of TensorFlow whose output is limited by an argument of the call."""
_NO_END = "without limit"


def notes_on_ceilings(case: PortCase) -> Iterator[str]:
    """Yields a note for each activation whose upper limit differs from that of its counterpart, which may have none.

    Args:
        case: Both implementations, whose outputs agree.
    """
    for layer in case.layers:
        one, other = (_ceiling(call) for call in (layer.source, layer.target))
        if one and other and one != other:
            yield f"{layer.names}: the first grows {one}, the second {other}, and no number of the batch came that far"


def _ceiling(call: LayerCall) -> str:
    """Says how far an activation grows; "" for any other call."""
    kind = call.kind.lower()
    if kind == "relu6":
        return "up to 6"
    if kind != "relu" and kind not in _CLIPPING:
        return ""
    given = call.settings.get("max_value", call.settings.get("max_val"))
    if isinstance(given, int | float):
        return f"up to {given:g}"
    return _NO_END if kind == "relu" else "up to a limit"
