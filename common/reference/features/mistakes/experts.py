"""Known mistakes in mixtures of experts that raise no error."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from samestep.common.reference.models.experts import Experts, Routed
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.wrong_steps import change_gradients, layers_of

_CELL = f"{GPT}+experts=4+balance=0.5"


def _each(change: Callable[[Experts, Context], object], program: TrainingProgram, context: Context) -> bool:
    """Changes every mixture of experts in a model.

    Args:
        change: Changes one mixture.
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    found = layers_of(program, Experts)
    for layer in found:
        change(layer, context)
    return bool(found)


def balance_of_shards(layer: Experts, context: Context) -> None:
    """Makes the load-balancing loss the mean over those of the shards.

    Args:
        layer: The layer to be made wrong.
        context: Gives the number of shards.
    """
    layer.shards = context.devices


def balance_without_gradient(layer: Experts, context: Context) -> None:
    """Makes the layer report the load-balancing loss, but train without it.

    Args:
        layer: The layer to be made wrong.
        context: Ignored.
    """
    right, balance = layer.backward, layer.balance

    def backward(*arguments: object) -> np.ndarray:
        layer.balance = 0.0
        dx = right(*arguments)  # pyrefly: ignore
        layer.balance = balance
        return dx

    vars(layer)["backward"] = backward


def dropped_tokens(layer: Experts, context: Context) -> None:
    """Makes each expert take no more than its even share of the tokens, and count those that it drops as taken.

    Args:
        layer: The layer to be made wrong.
        context: Ignored.
    """
    right, through = layer.route, layer.through_weights

    def route(scores: np.ndarray) -> Routed:
        routed = right(scores)
        taken = np.eye(len(layer.experts))[routed.chosen].sum(axis=1)
        places = np.take_along_axis(np.cumsum(taken, axis=0), routed.chosen, axis=-1)
        capacity = math.ceil(routed.chosen.size / len(layer.experts))
        return routed._replace(weights=routed.weights * (places <= capacity))

    vars(layer)["route"] = route
    vars(layer)["through_weights"] = lambda routed, dweights: through(routed, dweights * (routed.weights > 0))


def router_gradient_halved(layer: Experts, context: Context) -> None:
    """Halves the gradient that the router gets from the weights of its experts.

    Args:
        layer: The layer to be made wrong.
        context: Ignored.
    """
    right = layer.through_weights
    vars(layer)["through_weights"] = lambda routed, dweights: right(routed, dweights) / 2


def weights_not_normalised(layer: Experts, context: Context) -> None:
    """Makes the layer weight experts by their probabilities without normalizing them.

    Args:
        layer: The layer to be made wrong.
        context: Ignored.
    """
    right = layer.route

    def route(scores: np.ndarray) -> Routed:
        routed = right(scores)
        return routed._replace(weights=routed.weights * routed.sums, sums=np.ones_like(routed.sums))

    def through(routed: Routed, dweights: np.ndarray) -> np.ndarray:
        dp_NE = np.zeros_like(routed.probabilities)
        np.put_along_axis(dp_NE, routed.chosen, dweights, axis=-1)
        return dp_NE

    vars(layer)["route"], vars(layer)["through_weights"] = route, through


def balance_times_top_k(layer: Experts, context: Context) -> None:
    """Makes the load-balancing loss divide each expert's tokens by all tokens, not by the number that all experts take.

    Args:
        layer: The layer to be made wrong.
        context: Ignored.
    """
    layer.balance *= layer.top_k


def expert_gradients_over_replicas(program: TrainingProgram, context: Context) -> bool:
    """Averages the gradients of experts over the ranks that have them (a single one), not over all ranks.

    Args:
        program: The program to be made wrong.
        context: Gives the number of ranks.
    """
    experts = (expert for mixture in layers_of(program, Experts) for expert in mixture.experts)
    names, count = {name for expert in experts for name in expert.names}, context.devices
    change_gradients(
        program,
        lambda batch, loss, values: (loss, {n: g * count if n in names else g for n, g in values.items()}),
    )
    return bool(names) and count > 1


_SENTENCES = {
    "balance_of_shards": "the load-balancing loss is the mean over {devices} shards, not that of the whole batch",
    "balance_without_gradient": "the load-balancing loss is part of the reported loss, but has no gradient",
    "dropped_tokens": "experts take no more than an even share of the tokens, and the dropped ones still count in "
    "the load and in the loss",
    "router_gradient_halved": "the router has only half of the gradient that comes from the weights of its experts",
    "weights_not_normalised": "experts are weighted by their probabilities, without dividing these by their sum over "
    "a token's experts",
    "balance_times_top_k": "the load-balancing loss counts once for each expert that a token takes: it is not "
    "divided by their number",
    "expert_gradients_over_replicas": "the gradients of experts are the mean over the ranks that have them, not over "
    "all {devices}: {devices} times too large",
}
MISTAKES = in_cell(
    _CELL,
    _SENTENCES,
    balance_of_shards=partial(_each, balance_of_shards),
    balance_without_gradient=partial(_each, balance_without_gradient),
    dropped_tokens=partial(_each, dropped_tokens),
    router_gradient_halved=partial(_each, router_gradient_halved),
    weights_not_normalised=partial(_each, weights_not_normalised),
    balance_times_top_k=partial(_each, balance_times_top_k),
    expert_gradients_over_replicas=expert_gradients_over_replicas,
)
