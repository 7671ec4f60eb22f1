"""What happens in an exchange, and why: a sentence for each kind of exchange, and for each phase without one."""

from collections.abc import Mapping
from pathlib import Path

from samestep.common.files.reading import read_toml
from samestep.common.mesh import AXES
from samestep.experiments.page.drawings.transfers import DrawnTransfer

BEGINNING: Mapping[str, str] = {
    "forward": "Each device computes what it has of the model on what it has of the batch.",
    "backward": "The gradients are computed, from the last layer to the first.",
    "update": "The devices that hold optimizer state update its parameters.",
}
"""Phase -> what devices compute in it."""
NOTHING_SENT = "Nothing is sent."
_SENTENCES: Mapping[str, Mapping[str, Mapping[str, str]]] = read_toml(Path(__file__).with_suffix(".toml"))  # pyrefly: ignore
"""What the axis of an exchange cuts, or "plain" -> phase -> operation -> the sentence."""


def sentence(each: DrawnTransfer) -> str:
    """Returns the purpose of an exchange, as a sentence.

    Args:
        each: The exchange.
    """
    cut = {dimension for name in each.group.split(",") if name in AXES for dimension in AXES[name].cuts}
    for kind, phases in _SENTENCES.items():
        said = phases.get(each.phase, {}).get(each.operation)
        if said and kind in (*cut, "plain"):
            return said
    return "Devices exchange numbers."
