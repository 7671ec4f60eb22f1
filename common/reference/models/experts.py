"""A mixture of experts, with its derivative written out.

Shape suffixes: N tokens, D width, E experts, k experts of a token.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from samestep.common.features.experts.balance import balance_of
from samestep.common.program import Arrays
from samestep.common.reference.models.layers import Layer, Linear, Saved
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.transformer import TransformerSpec


class Routed(NamedTuple):
    """The decisions of a router.

    Attributes:
        probabilities: The probability of each expert for each token, [N, E].
        chosen: The experts that each token takes, [N, k].
        sums: The sum of their probabilities, [N, 1].
        weights: Their probabilities divided by that sum, [N, k].
        counts: The number of tokens of each expert, [shards, E].
    """

    probabilities: np.ndarray
    chosen: np.ndarray
    sums: np.ndarray
    weights: np.ndarray
    counts: np.ndarray


class Expert:
    """One of several MLPs whose parameters are stacked.

    Attributes:
        mlp: The MLP.
        names: The names of the stacks.
    """

    def __init__(self, mlp: Layer, names: Sequence[str], number: int) -> None:
        self.mlp, self.names, self._number = mlp, names, number

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Applies the MLP, [tokens, D] -> [tokens, D]."""
        return self.mlp.forward(self._own(params), x)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Writes the gradients of its parameters into their places in the stacks, and returns the input's."""
        own: Arrays = {}
        dx = self.mlp.backward(self._own(params), saved, dy, own)
        for name, value in own.items():
            gradients.setdefault(name, np.zeros_like(params[name]))[self._number] = value
        return dx

    def _own(self, params: Arrays) -> Arrays:
        return {name: params[name][self._number] for name in self.names}


class Experts:
    """Sums the outputs of the k likeliest experts of each token, weighted by their normalized probabilities.

    Attributes:
        shards: The number of parts of the tokens over which the load-balancing loss is averaged; 1 in a correct step.
        router: Gives each token a score for each expert.
    """

    def __init__(self, name: str, mlp: Callable[[], Layer], spec: TransformerSpec, context: StepContext) -> None:
        self.router: Layer = Linear(f"{name}/router", bias=False)
        stacks = [each for each, param in spec.params().items() if param.stacked and each.startswith(f"{name}/")]
        self.experts = [Expert(mlp(), stacks, number) for number in range(spec.experts)]
        self.top_k, self.balance, self.shards = spec.top_k, balance_of(spec), 1
        self.context = context

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Applies the chosen experts, [B, T, D] -> [B, T, D]."""
        x_ND = x.reshape(-1, x.shape[-1])
        scores, of_router = self.router.forward(params, x_ND)
        routed = self.route(scores)
        self.context.added += self._scale(len(x_ND)) * float((routed.counts * self._sums(routed.probabilities)).sum())
        y_ND, taken = np.zeros_like(x_ND), []
        for number, expert in enumerate(self.experts):
            tokens, places = np.nonzero(routed.chosen == number)
            out, saved = expert.forward(params, x_ND[tokens])
            y_ND[tokens] += routed.weights[tokens, places, None] * out
            taken.append((tokens, places, out, saved))
        return y_ND.reshape(x.shape), (routed, of_router, taken)

    def route(self, scores: np.ndarray) -> Routed:
        """Decides which experts each token takes, from scores [N, E]."""
        probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        likeliest, ties = np.argsort(-probabilities, axis=-1, kind="stable"), self.context.ties
        chosen = ties.choose(probabilities, likeliest, self.top_k) if ties else likeliest[:, : self.top_k]
        top = np.take_along_axis(probabilities, chosen, axis=-1)
        sums = top.sum(axis=-1, keepdims=True)
        taken = np.eye(len(self.experts))[chosen].sum(axis=1)
        return Routed(probabilities, chosen, sums, top / sums, self._sums(taken))

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Propagates the gradient through the experts, their weights, the load-balancing loss and the softmax."""
        routed, of_router, taken = saved
        dy_ND = dy.reshape(-1, dy.shape[-1])
        dx_ND, dweights = np.zeros_like(dy_ND), np.zeros_like(routed.weights)
        for expert, (tokens, places, out, of_expert) in zip(self.experts, taken, strict=True):
            dweights[tokens, places] = (dy_ND[tokens] * out).sum(axis=-1)
            dy_own = routed.weights[tokens, places, None] * dy_ND[tokens]
            dx_ND[tokens] += expert.backward(params, of_expert, dy_own, gradients)
        dp_NE = self.through_weights(routed, dweights)
        dp_NE += self._scale(len(dy_ND)) * np.repeat(routed.counts, len(dy_ND) // self.shards, axis=0)
        along = (dp_NE * routed.probabilities).sum(axis=-1, keepdims=True)
        dscores = routed.probabilities * (dp_NE - along)
        return (dx_ND + self.router.backward(params, of_router, dscores, gradients)).reshape(dy.shape)

    def through_weights(self, routed: Routed, dweights: np.ndarray) -> np.ndarray:
        """Returns the gradient of the probabilities [N, E], given the gradient of the weights.

        Args:
            routed: The decisions of the router.
            dweights: The gradient of the weights, [N, k].
        """
        dtop = (dweights - (dweights * routed.weights).sum(axis=-1, keepdims=True)) / routed.sums
        dp_NE = np.zeros_like(routed.probabilities)
        np.put_along_axis(dp_NE, routed.chosen, dtop, axis=-1)
        return dp_NE

    def _sums(self, of_tokens: np.ndarray) -> np.ndarray:
        """Adds up numbers [N, E] over the tokens of each shard: [shards, E]."""
        return of_tokens.reshape(self.shards, -1, of_tokens.shape[-1]).sum(axis=1)

    def _scale(self, tokens: int) -> float:
        """Returns the factor of (tokens of an expert) x (sum of its probabilities) in the mean loss."""
        of_shard = tokens // self.shards
        return self.balance * len(self.experts) / (self.top_k * of_shard * of_shard * self.shards)
