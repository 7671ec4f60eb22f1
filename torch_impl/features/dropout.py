"""Dropout whose mask depends on the examples and not on the rank that computes them, and switching off a user's dropout."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from samestep.common.batch import Chunk
from samestep.common.features import Features
from samestep.common.features.dropout.feature import rate_of
from samestep.common.features.dropout.masks import keeps
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.layer import Stilled
from samestep.common.workload.models.spec import ModelSpec
from samestep.torch_impl.features.draws import STILL
from samestep.torch_impl.step_context import StepContext


class Dropout(nn.Module):
    """A layer that keeps some elements of each example, multiplied by 1 / (1 - rate), and drops the others.

    Attributes:
        behind: The path of the layer whose outputs this layer takes.
    """

    def __init__(self, rate: float, number: int, context: StepContext, behind: str = "") -> None:
        super().__init__()
        self._context = context
        self.rate, self.number, self.behind = rate, number, behind
        self._cut: dict[int, Chunk] = {}

    def place(self, dim: int, part: Chunk) -> None:
        """Sets which part of the activation this rank has.

        Args:
            dim: The dim along which it is split; call once for each such dim.
            part: Which part of the dim this rank has.
        """
        self._cut[dim] = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drops elements of [batch, ...] in training; returns the input in evaluation."""
        keys = self._context.keys
        if keys is None or x.is_meta:
            return x
        kept = keeps(keys.view(-1, *[1] * (x.ndim - 1)), self._elements(x), self.number, self.rate)
        return torch.where(kept, x * (1 / (1 - self.rate)), 0.0)

    def _elements(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the index of each element in the whole activation of one example."""
        elements, stride = torch.zeros((), dtype=torch.int64, device=x.device), 1
        for dim in reversed(range(1, x.ndim)):
            size, part = x.shape[dim], self._cut.get(dim) or self._cut.get(dim - x.ndim) or Chunk()
            own = torch.cat([torch.arange(p.start, p.stop, device=x.device) for p in part.pieces(size * part.count)])
            elements = elements + (own * stride).view(-1, *[1] * (x.ndim - 1 - dim))
            stride *= size * part.count
        return elements


def dropout(spec: ModelSpec, number: int, context: StepContext, behind: str = "") -> nn.Module:
    """Returns the dropout layer, or the identity if the rate is 0.

    Args:
        spec: The spec of the model.
        number: The number of the dropout layer in the model, from 0.
        context: Holds the keys of the current examples.
        behind: The path of the layer whose outputs it takes.
    """
    rate = rate_of(spec)
    return Dropout(rate, number, context, behind) if rate else nn.Identity()


def prepare(features: Features) -> None:
    """Prepares the functions that draw random numbers in a forward pass; call it before the user's file is imported."""
    if features.dropout is False:
        DRAWS.install(STILL)


def switch(model: nn.Module, features: Features) -> None:
    """If that is asked for, switches off every dropout of a user model and replaces its other random draws by their means.

    Args:
        model: The model, or a stage of it.
        features: The requested features.
    """
    DRAWS.are_still = False
    if features.dropout is False:
        held_still(model)


def held_still(model: nn.Module) -> dict[str, Stilled]:
    """Switches off every dropout of a user model, and replaces its other random draws by their means.

    Args:
        model: The model, or a stage of it.

    Returns:
        What each layer would drop in training, by its path.
    """
    DRAWS.are_still = True
    found: dict[str, Stilled] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            found[path] = Stilled("dropout", _DROPPED.get(type(module).__name__, "channels"), float(module.p))
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            found[path] = Stilled("dropout", "elements", float(module.dropout))
            module.dropout = 0.0
    return found


def dropped_by(function: Callable[..., object], args: Sequence[object], named: Mapping[str, object]) -> Stilled | None:
    """Returns what a function that draws would drop if it were not replaced; None if it drops nothing.

    Args:
        function: The function.
        args: Its arguments.
        named: Its keyword arguments.
    """
    if (found := _FUNCTIONS.get(function.__name__)) is None:
        return None
    what, names, usual = found
    given = {**usual, **dict(zip(names, args, strict=False)), **named}
    share = float(str(given.get("dropout_p", given.get("p"))))
    return Stilled("dropout", what, share) if given["training"] and share else None


_DROPPED = {"Dropout": "elements", "AlphaDropout": "elements of SELU", "FeatureAlphaDropout": "channels of SELU"}
_GIVEN, _USUAL = ("input", "p", "training"), {"p": 0.5, "training": True}
_FUNCTIONS: Mapping[str, tuple[str, Sequence[str], Mapping[str, object]]] = {
    "dropout": ("elements", _GIVEN, _USUAL),
    **{f"dropout{n}d": ("channels", _GIVEN, _USUAL) for n in (1, 2, 3)},
    "alpha_dropout": (_DROPPED["AlphaDropout"], _GIVEN, {**_USUAL, "training": False}),
    "feature_alpha_dropout": (_DROPPED["FeatureAlphaDropout"], _GIVEN, {**_USUAL, "training": False}),
    "scaled_dot_product_attention": (
        "elements",
        ("query", "key", "value", "attn_mask", "dropout_p"),
        {"dropout_p": 0.0, "training": True},
    ),
}
"""Function -> what it drops, the names of its arguments in order, and their defaults."""
