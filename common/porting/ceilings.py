"""Activations with an upper limit in one implementation: if no number of the batch reaches it, outputs agree."""

from collections.abc import Iterator

from samestep.common.porting.case import PortCase
from samestep.common.porting.model_trace import LayerCall

_CLIPPING = ("hardtanh", "clamp", "clip", "clipbyvalue", "minimum")
"""Modules, functions of torch and operations of TensorFlow whose output is limited to a number that the call was given."""
_NO_END = "without end"


def notes_on_ceilings(case: PortCase) -> Iterator[str]:
    """Yields a note for each activation whose limit is not that of its counterpart, which may have none.

    Args:
        case: Both implementations, whose outputs agree.
    """
    for layer in case.layers:
        one, other = (_ceiling(call) for call in (layer.source, layer.target))
        if one and other and one != other:
            yield f"{layer.names}: the first grows {one}, the second {other}, and no number came that far"


def _ceiling(call: LayerCall) -> str:
    """Says how far an activation grows; "" of what is none of these."""
    kind = call.kind.lower()
    if kind == "relu6":
        return "up to 6"
    if kind != "relu" and kind not in _CLIPPING:
        return ""
    given = call.settings.get("max_value", call.settings.get("max_val"))
    if isinstance(given, int | float):
        return f"up to {given:g}"
    return _NO_END if kind == "relu" else "up to a limit"
