"""How the running statistics of normalizations move in one step."""

import dataclasses

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.case import PortCase

_FITS = 1e-6
"""How far a change may be from a share of the distance, relative to the step."""
_LEAST_STEP = 1e-6
"""The smallest scale of a step, as a share of the statistic; a smaller step is mostly rounding."""


@dataclasses.dataclass(frozen=True)
class _Move:
    """How far one step moved a running statistic towards that of the batch.

    Attributes:
        share: The share of the distance that it moved.
        rest: The rest of the movement, relative to the step.
        is_biased: Whether the statistic of the batch was the biased variance.
    """

    share: float
    rest: float
    is_biased: bool

    @property
    def fits(self) -> bool:
        """Whether the share explains the whole movement."""
        return self.rest <= _FITS


def _moved(layer: Aligned, case: PortCase) -> dict[str, tuple[_Move, _Move]]:
    """Returns how each side moved each running statistic, by role; those that only one side has are left out."""
    if layer.inputs is None or not layer.buffers[0]:
        return {}
    found: dict[str, list[_Move]] = {}
    buffers = case.source.buffers, case.target.buffers
    for side, (x, old) in enumerate(zip(layer.inputs, layer.buffers, strict=True)):
        axes = tuple(range(x.ndim - 1))
        count = x[..., 0].size
        if count < 2:
            return {}  # one number has no variance
        variance = x.var(axes)
        for role, seen in (
            ("running_mean", [x.mean(axes)]),
            ("running_var", [variance * count / (count - 1), variance]),
        ):
            name = _buffer_name(case, layer, role, side)
            if role in old and name in buffers[side]:
                moves = [_move(old[role], buffers[side][name], each) for each in seen]
                best = min(range(len(moves)), key=lambda number: moves[number].rest)
                found.setdefault(role, []).append(dataclasses.replace(moves[best], is_biased=best > 0))
    return {role: (moves[0], moves[1]) for role, moves in found.items() if len(moves) == 2}


def _move(old: np.ndarray, new: np.ndarray, seen: np.ndarray) -> _Move:
    step, way = new - old, seen - old
    share = float((step @ way) / (way @ way)) if way.any() else 0.0
    scale = max(np.abs(step).max(), _LEAST_STEP * np.abs(old).max(), 1e-300)
    rest = float(np.abs(step - share * way).max() / scale)
    return _Move(share, rest if np.isfinite(rest) else np.inf, False)


def moved_shares(layer: Aligned, case: PortCase) -> list[tuple[float, float]]:
    """Returns by which share of the distance to the batch's statistics each running statistic moves, where the sides differ.

    Args:
        layer: The normalization.
        case: The port.
    """
    moves = _moved(layer, case).values()
    return [(one.share, other.share) for one, other in moves if abs(one.share - other.share) > _FITS]


def _buffer_name(case: PortCase, layer: Aligned, role: str, side: int) -> str:
    name = (layer.source, layer.target)[side].name
    held = (both[side].buffers.get(role) for both in case.matching.layers if both[side].call == name)
    return next((each.neutral for each in held if each is not None), "")


def explain_buffers(layer: Aligned, case: PortCase) -> str:
    """Explains why the running statistics of a normalization move differently; "" if they do not.

    Args:
        layer: The normalization.
        case: The port.
    """
    for role, (one, other) in _moved(layer, case).items():
        if one.fits != other.fits:
            name = role.replace("running_var", "running variance").replace("_", " ")
            return f"the {name} does not move to that of the batch in {'{b}' if one.fits else '{a}'}"
        # A layer that is called twice moves its mean twice: that fits no share, but it is the same on both sides.
        if (one.fits or role == "running_mean") and abs(one.share - other.share) > _FITS:
            return (
                f"{{a}} moves them by {one.share:.3g} (momentum={one.share:.3g}), {{b}} by {other.share:.3g} "
                f"(momentum={1 - other.share:.3g}); {{a}}'s momentum is one minus Keras'"
            )
    return ""


def notes(case: PortCase) -> tuple[str, ...]:
    """Returns notes on differences that every port has and that do not affect training."""
    biased = []
    for layer in case.layers:
        moves = _moved(layer, case).get("running_var")
        if moves is not None and moves[1].is_biased and not moves[0].is_biased:
            biased.append(layer.target.name)
    if not biased:
        return ()
    return (
        f"{{a}} keeps the unbiased running variance, n / (n - 1) times as large as Keras' ({', '.join(biased)}): evaluation "
        "differs by that as training goes on",
    )
