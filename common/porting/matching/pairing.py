"""Decides whether a torch layer can be a TensorFlow layer, and if so, which parameters correspond and how they change."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from samestep.common.porting.changes import CHANGES
from samestep.common.workload.models.layer import WEIGHT_ROLES, LayerTensor, ParameterLayer

KNOWN = ("Linear", "NonDynamicallyQuantizableLinear", "Dense", "EinsumDense")
"""Classes whose kernels have a well-known layout."""
_BILINEAR = "Bilinear"
_NORM_CHANGES = ("same", "channels")
_REVERSED_SPACE = ("ConvTranspose2d", "ConvTranspose3d", "Conv3d")
_BIASES = {(True, 2): "stacked", (True, 1): "summed gates", (False, 1): "summed"}
"""(whether it is a GRU, dims of TensorFlow's bias) -> the change that makes that bias from torch's two."""
_RECURRENT_KINDS = ("RNN", "LSTM", "GRU", "MultiheadAttention")


@dataclasses.dataclass(frozen=True)
class Pair:
    """Parameters of torch, and the parameters of TensorFlow that are made from them.

    Attributes:
        layers: The layer of torch and that of TensorFlow.
        source: The source's parameters.
        target: The target's parameters.
        change: A key of `CHANGES`.
        is_buffer: Whether these are buffers instead of parameters.
    """

    layers: tuple[ParameterLayer, ParameterLayer]
    source: tuple[LayerTensor, ...]
    target: tuple[LayerTensor, ...]
    change: str
    is_buffer: bool = False

    @property
    def other_changes(self) -> tuple[str, ...]:
        """The other changes that would fit; empty if the shape or the classes of the layers decide."""
        shape, held = self.target[0].shape, self.source[0]
        if self.layers[0].kind == _BILINEAR and len(held.shape) == 3:
            return tuple(each for each in _bilinear_changes(held.neutral_shape, shape) if each != self.change)
        roles = {*self.layers[0].params} & {*self.layers[1].params}
        if len(shape) < 2 or len({*shape}) > 1 or "table" in roles:
            return ()
        if "scale" in roles:
            is_scale = held == self.layers[0].params["scale"]  # the bias follows the scale
            return tuple(each for each in _NORM_CHANGES if each != self.change) if is_scale else ()
        is_kernel = len(shape) == 2 and self.change in ("same", "native", "flipped")
        is_known = all(_is_laid_out(layer) for layer in self.layers)
        return ("flipped" if self.change == "native" else "native",) if is_kernel and not is_known else ()

    @property
    def permutation(self) -> str:
        """How torch's array becomes TensorFlow's, in words."""
        change, axes = CHANGES[self.change], self.source[0].permutation
        if self.change != "same":
            said = change.words.format(count=len(self.target))
            is_turned = self.change in ("reshaped", "split", "packed", "gates") and axes == (1, 0)
            return f"transposed, {said}" if is_turned else said
        return "" if axes == tuple(range(len(axes))) else "transposed" if axes == (1, 0) else str(axes)

    def to_target(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Makes TensorFlow's arrays by neutral name.

        Args:
            values: Torch's arrays by neutral name, in the neutral layout.
        """
        made = CHANGES[self.change].make([values[held.neutral] for held in self.source], [h.shape for h in self.target])
        return {held.neutral: array for held, array in zip(self.target, made, strict=True)}

    def to_source(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Makes torch's arrays by neutral name, in the neutral layout; if two of them are summed, the second is zero.

        Args:
            values: TensorFlow's arrays by neutral name.
        """
        arrays, shapes = [values[held.neutral] for held in self.target], [held.neutral_shape for held in self.source]
        made = CHANGES[self.change].undo(arrays, shapes)
        return {held.neutral: array for held, array in zip(self.source, made, strict=True)}


Matched = tuple[list[Pair], list[ParameterLayer], list[ParameterLayer]]
"""The matched parameters, and the layers that are left on each side."""


def fit(one: ParameterLayer, other: ParameterLayer) -> list[Pair] | None:
    """Pairs the parameters of two layers, or returns None if they cannot be the same layer.

    Args:
        one: Torch's layer.
        other: TensorFlow's layer.
    """
    if "recurrent" in one.params and "recurrent" in other.params:
        return list(_recurrent(one, other)) if _gates(one) == _gates(other) else None
    ours, theirs = _weights(one), _weights(other)
    roles = {*ours, *theirs}
    bias = None if "bias" in roles else one.params.get("bias")  # a layer that holds only a bias holds it as its weight
    if len(ours) == len(theirs) == 1 and ("value" in roles or roles == {"bias"}):
        ours, theirs = {"value": next(iter(ours.values()))}, {"value": next(iter(theirs.values()))}
    if ours.keys() != theirs.keys():
        return None
    pairs = []
    for role, held in (ours | {"bias": bias}).items():
        target = theirs.get(role, other.params.get(role))
        if held is None or target is None:
            continue
        if (change := _change(one, other, role, held, target)) is None:
            return None
        pairs.append(Pair((one, other), (held,), (target,), change))
    for role in one.buffers.keys() & other.buffers.keys():
        pairs.append(Pair((one, other), (one.buffers[role],), (other.buffers[role],), "same", is_buffer=True))
    return pairs or None


def _weights(layer: ParameterLayer) -> dict[str, LayerTensor]:
    weights = {role: held for role, held in layer.params.items() if role in WEIGHT_ROLES}
    return weights or layer.params


def _gates(layer: ParameterLayer) -> tuple[tuple[int, ...], ...]:
    return tuple(layer.params[role].neutral_shape for role in ("kernel", "recurrent"))


def _change(
    one: ParameterLayer, other: ParameterLayer, role: str, held: LayerTensor, target: LayerTensor
) -> str | None:
    """Returns how one parameter becomes the other; None if it cannot."""
    shape, native = held.neutral_shape, tuple(reversed(held.neutral_shape))
    is_kernel = len(shape) > 1 and role in ("value", "kernel")
    if is_kernel and one.kind == _BILINEAR:
        return next(_bilinear_changes(shape, target.shape), None)
    if is_kernel and not _is_laid_out(one) and target.shape == native:
        return "native"
    if len(shape) > 2 and one.kind in _REVERSED_SPACE and target.shape == (*reversed(shape[:-2]), *shape[-2:]):
        return "space"
    is_norm = role in ("scale", "bias") and "scale" in one.params
    if is_norm and len(shape) > 1 and target.shape == (*shape[1:], shape[0]) != shape:
        return "channels"  # a norm over channels and space
    if target.shape == shape:
        return "flipped" if is_kernel and not _is_laid_out(one) else "same"
    if is_kernel and not _is_laid_out(other) and target.shape == native:
        return "native"
    if not is_kernel and [size for size in target.shape if size != 1] == [size for size in shape if size != 1]:
        return "reshaped"  # such as the slopes of Keras' PReLU, which have one axis for each axis of an image
    is_split = one.kind in KNOWN or other.kind in KNOWN or "Depthwise" in other.kind or role == "bias"
    # Axes are split or joined at one end only, as in attention heads and depthwise filters.
    keeps_an_end = len(shape) == 1 or shape[0] == target.shape[0] or shape[-1] == target.shape[-1]
    if is_split and np.prod(target.shape) == np.prod(shape) and keeps_an_end:
        return "reshaped"
    return None


def _bilinear_changes(shape: tuple[int, ...], target: tuple[int, ...]) -> Iterator[str]:
    """Yields the changes that may turn a bilinear kernel into the target, which may hold both inputs' products along one axis.

    Args:
        shape: [second inputs, first inputs, outputs].
        target: The shape of the target.
    """
    second, first, outputs = shape
    if target in ((first, second, outputs), (first * second, outputs)):
        yield "exchanged"
    if target == shape:
        yield "flipped"
    if target == (second * first, outputs):
        yield "reshaped"
    if target == shape[::-1]:
        yield "native"


def _is_laid_out(layer: ParameterLayer) -> bool:
    return layer.kind in KNOWN or layer.kind.startswith(("Conv", "Depthwise")) or layer.kind in _RECURRENT_KINDS


def _recurrent(one: ParameterLayer, other: ParameterLayer) -> Iterator[Pair]:
    """Pairs the parameters of an LSTM, a GRU or a plain recurrent layer."""
    is_gru = one.kind == "GRU" and "GRU" in other.kind
    for role in ("kernel", "recurrent"):
        yield Pair((one, other), (one.params[role],), (other.params[role],), "gates" if is_gru else "same")
    biases = tuple(one.params[role] for role in ("bias", "second_bias") if role in one.params)
    if not biases or "bias" not in other.params:
        return
    target = other.params["bias"]
    if len(biases) == 2:
        yield Pair((one, other), biases, (target,), _BIASES[is_gru, len(target.shape)])
    else:
        yield Pair((one, other), biases, (target,), "gates" if is_gru else "same")
