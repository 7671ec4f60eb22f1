"""The parameters of the usual layers, the facts about a model made of such layers, and which parameters are trained."""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Literal

from samestep.common.flags import flags
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.findings import TwoBytes, Use
from samestep.common.workload.models.spec import (
    ModelSpec,
    Param,
    Segment,
    layer,
    num_positions,
    parameters_of,
    shared_parameters,
)

ROUNDINGS = 3
"""The roundings of one product: both factors and the result."""


def stated(model: ModelSpec) -> ModelFacts:
    """Returns the facts about a model for which every mirror has formulas."""
    params, positions = model.params(), (num_positions(model),)
    products = sum(param.is_factor for param in params.values())
    # The first layer reads data, for which no gradient is needed; ids have none.
    first = {} if model.inputs().ids else {layer(next(iter(params))): Use(positions, takes_gradient=False)}
    shared = shared_parameters(model).keys()  # they stay for the whole step, like a tied table
    return ModelFacts(
        blocks=tuple(each for each in model.segments() if shared.isdisjoint(parameters_of(model, each))),
        rounded=TwoBytes(roundings=ROUNDINGS * products),
        uses=first,
        other_use=Use(positions),
        activation=getattr(model, "activation", ""),
        settings={name: getattr(model, name) for name in flags(model)},
    )


class Stated:
    """A model about which all facts follow from its parameters and segments."""

    @functools.cached_property
    def facts(self: ModelSpec) -> ModelFacts:
        """The facts about the model that every mirror uses."""
        return stated(self)


def linear(
    name: str,
    fan_in: int,
    fan_out: int,
    split: Literal["column", "row"] | None = None,
    gain: float = 1.0,
    bias: bool = True,
    groups: int = 0,
    shares_input: bool = False,
    stacked: int = 0,
) -> dict[str, Param]:
    """Returns the parameters of a linear layer, or of several stacked ones.

    Args:
        name: The path of the layer.
        fan_in: The number of input features.
        fan_out: The number of output features.
        split: "column" (the outputs are split), "row" (the inputs are split, and the bias stays whole) or None.
        gain: The factor of the standard deviation 1 / sqrt(fan_in).
        bias: Whether the layer has a bias.
        groups: As in `Param`.
        shares_input: As in `Param`.
        stacked: The number of stacked layers; 0 means a single layer, whose parameters have no dim for it.
    """
    several = (stacked,) if stacked else ()
    first = len(several)
    axis = {"column": first + 1, "row": first, None: None}[split]
    shape, std = (*several, fan_in, fan_out), gain / math.sqrt(fan_in)
    table = {f"{name}/kernel": Param(shape, "kernel", std, 0.0, axis, 0, groups, shares_input, stacked=stacked)}
    if bias:
        of_columns = first if split == "column" else None
        table[f"{name}/bias"] = Param((*several, fan_out), "bias", split=of_columns, stacked=stacked)
    return table


def norm(name: str, width: int, bias: bool = True) -> dict[str, Param]:
    """Returns the parameters of a normalization of `width` features.

    Args:
        name: The path of the layer.
        width: The number of features.
        bias: Whether the layer has a bias.
    """
    table = {f"{name}/scale": Param((width,), "scale", constant=1.0)}
    return table | ({f"{name}/bias": Param((width,), "bias")} if bias else {})


# --- what a step reaches ----------------------------------------------------------------------------------------------


def trained(params: Mapping[str, Param]) -> dict[str, Param]:
    """Returns the parameters that are not frozen."""
    return {name: param for name, param in params.items() if not param.frozen}


def updated(learning: Iterable[Param]) -> list[Param]:
    """Returns the parameters that updates do not always skip."""
    return [param for param in learning if not param.skipped]


def with_gradients(learning: Iterable[Param]) -> list[Param]:
    """Returns the parameters for which steps compute a gradient."""
    return [param for param in updated(learning) if param.has_gradient]


def num_trained(params: Iterable[Param]) -> int:
    """Returns the number of elements of the parameters that are not frozen."""
    return sum(param.size for param in params if not param.frozen)


def carry_gradients(model: ModelSpec, segments: Iterable[Segment]) -> bool:
    """Returns whether the outputs of some segments depend on a trained parameter.

    Args:
        model: The spec of the model.
        segments: All segments up to the outputs.
    """
    return any(not param.frozen for param in parameters_of(model, *segments).values())


def first_trained(model: ModelSpec) -> int:
    """Returns the number of the first segment with a trained parameter, before which no gradient is needed."""
    segments = model.segments()
    return next((number for number, each in enumerate(segments) if carry_gradients(model, [each])), len(segments))


@functools.lru_cache(maxsize=8)
def kinds_of_segments(model: ModelSpec) -> Mapping[str, int]:
    """Returns segment -> a number that is equal for segments with equal parameters; a tied parameter equals only itself."""
    shared, kinds = shared_parameters(model), dict[object, int]()
    return {
        segment.name: kinds.setdefault(
            tuple((name if name in shared else "", param) for name, param in parameters_of(model, segment).items()),
            len(kinds),
        )
        for segment in model.segments()
    }
