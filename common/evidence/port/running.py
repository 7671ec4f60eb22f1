"""How the running statistics of normalisations move in one step."""

from collections.abc import Mapping, Sequence

import numpy as np

from samestep.common.evidence.port.alignment import Aligned
from samestep.common.workload.matching import Matching

Arrays = Mapping[str, np.ndarray]


def _moved(layer: Aligned, buffers: tuple[Arrays, Arrays], matching: Matching) -> dict[str, list[tuple[float, float]]]:
    """Role of a buffer -> the share by which each side moved it to the statistics of the batch, and how well that fits."""
    found: dict[str, list[tuple[float, float]]] = {}
    if layer.inputs is None or not layer.buffers[0]:
        return found
    for side, both in enumerate(zip(layer.inputs, layer.buffers, strict=True)):
        x, old = both
        axes = tuple(range(x.ndim - 1))
        count = x[..., 0].size
        for role, seen in (("running_mean", x.mean(axes)), ("running_var", x.var(axes) * count / (count - 1))):
            name = _buffer_name(matching, layer, role, side)
            if role in old and name in buffers[side]:
                step, way = buffers[side][name] - old[role], seen - old[role]
                share = float((step @ way) / (way @ way))
                found.setdefault(role, []).append((share, float(np.abs(step - share * way).max())))
    return found


def _buffer_name(matching: Matching, layer: Aligned, role: str, side: int) -> str:
    name = (layer.torch, layer.tf)[side].name
    return next(
        (
            b.neutral
            for both in matching.layers
            if both[side].call == name
            for r, b in both[side].buffers.items()
            if r == role
        ),
        "",
    )


def explain_buffers(layer: Aligned, torch: Arrays, tf: Arrays, matching: Matching) -> str:
    """Why the running statistics of a normalisation move differently; "" if they do not.

    Args:
        layer: The normalisation.
        torch: Buffers after one step by neutral name.
        tf: Likewise.
        matching: Of the parameters.
    """
    moved = _moved(layer, (torch, tf), matching).get("running_mean", [])
    if len(moved) < 2 or abs(moved[0][0] - moved[1][0]) <= 1e-6:
        return ""
    one, other = moved[0][0], moved[1][0]
    return (
        f"torch moves them by {one:.3g} (momentum={one:.3g}), TensorFlow by {other:.3g} (momentum={1 - other:.3g}); "
        f"torch's momentum is one minus Keras'"
    )


def notes(layers: Sequence[Aligned], torch: Arrays, tf: Arrays, matching: Matching) -> tuple[str, ...]:
    """What differs between the frameworks in every port and does not change what is trained.

    Args:
        layers: The calls of both.
        torch: Buffers after one step by neutral name.
        tf: Likewise.
        matching: Of the parameters.
    """
    biased = []
    for layer in layers:
        moved = _moved(layer, (torch, tf), matching).get("running_var", [])
        if len(moved) == 2 and moved[0][1] < 1e-9 < moved[1][1]:
            biased.append(layer.tf.name)
    if not biased:
        return ()
    return (
        f"torch keeps the unbiased running variance, n / (n - 1) times as large as Keras' ({', '.join(biased)}): evaluation "
        "differs by that as training goes on",
    )
