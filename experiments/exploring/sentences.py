"""What happens in an exchange, and why: a sentence for each kind, and for each phase in which nothing is sent."""

from collections.abc import Mapping

from samestep.common.mesh import AXES
from samestep.experiments.page.drawings.transfers import DrawnTransfer

BEGINNING: Mapping[str, str] = {
    "forward": "Each device computes what it has of the model on what it has of the batch.",
    "backward": "The gradients are computed, from the last layer to the first.",
    "update": "The devices that hold optimizer state update its parameters.",
}
"""Phase -> what devices do in it, whatever is sent."""
NOTHING_SENT = "Nothing is sent."
_HANDED_OUT = "Each device hands out the parameters that it has updated."
_BETWEEN_STAGES = "A stage sends another one what it needs: activations forward, their gradients backward."
_SENTENCES: Mapping[tuple[str, str], str] = {
    ("forward", "all_reduce"): "Numbers that the layers need of the whole batch are summed.",
    ("backward", "all_reduce"): "Gradients are summed, since each device has computed them from its part of the batch.",
    ("update", "all_reduce"): "A few numbers are summed before the update, such as the norm of the gradient.",
    (
        "forward",
        "all_gather",
    ): "Each device hands out its shard of the parameters, so that all can compute with the whole.",
    ("backward", "all_gather"): "The parameters are gathered once more: they were freed after the forward pass.",
    ("update", "all_gather"): _HANDED_OUT,
    ("backward", "reduce_scatter"): "Gradients are summed, and each device keeps the sum of its own shard.",
    ("forward", "broadcast"): "The first device hands out what its layers keep beside parameters.",
    ("update", "broadcast"): _HANDED_OUT,
    ("forward", "send"): _BETWEEN_STAGES,
    ("backward", "send"): _BETWEEN_STAGES,
    ("forward", "pull"): "Workers read the parameters from the servers that hold them.",
    ("backward", "push"): "Workers send their gradients to the servers, which update the parameters.",
    ("forward", "scatter_inputs"): "The master hands out the batch, a part to each replica.",
    ("forward", "broadcast_parameters"): "The master hands out all parameters, anew in every step.",
    ("forward", "gather_outputs"): "The outputs go back to the master, which computes the loss.",
    ("backward", "scatter_output_gradients"): "The master hands out the gradients of the outputs.",
    ("backward", "reduce_gradients"): "The gradients go back to the master, which sums them and updates.",
    ("forward", "copy"): "Devices read the parameters from the one that stores them.",
    ("backward", "copy"): "Gradients are copied to where they are summed.",
}
_CUT_LAYERS: Mapping[tuple[str, str], str] = {
    ("forward", "all_reduce"): "Outputs of layers are summed, since each device has a part of every layer.",
    (
        "backward",
        "all_reduce",
    ): "Gradients of what went into the layers are summed, since each device has a part of every layer.",
    ("forward", "all_gather"): "Activations that are held in shards are gathered for the layers that are cut.",
    ("backward", "all_gather"): "Gradients that are held in shards are gathered for the layers that are cut.",
    ("forward", "reduce_scatter"): "Outputs of layers are summed, and each device keeps a shard of them.",
    (
        "backward",
        "reduce_scatter",
    ): "Gradients of what went into the layers are summed, and each device keeps a shard of them.",
}
_CUT_POSITIONS: Mapping[tuple[str, str], str] = {
    ("forward", "all_to_all"): "In attention, devices exchange positions for heads, and back.",
    ("backward", "all_to_all"): "The gradients of attention take the same way back.",
}
_CUT_EXPERTS: Mapping[tuple[str, str], str] = {
    ("forward", "all_to_all"): "Tokens go to the devices that have their experts, and what experts return comes back.",
    ("backward", "all_to_all"): "Their gradients take the same way back.",
}


def sentence(each: DrawnTransfer) -> str:
    """Returns what an exchange is for, as a sentence.

    Args:
        each: The exchange.
    """
    cut = {dimension for name in each.group.split(",") if name in AXES for dimension in AXES[name].cuts}
    kind = (each.phase, each.operation)
    if "features" in cut and kind in _CUT_LAYERS:
        return _CUT_LAYERS[kind]
    if "positions" in cut and kind in _CUT_POSITIONS:
        return _CUT_POSITIONS[kind]
    if "stacked" in cut and kind in _CUT_EXPERTS:
        return _CUT_EXPERTS[kind]
    return _SENTENCES.get(kind, "Devices exchange numbers.")
