"""What a pass needs to know about the whole batch. The model is built with it, and it is set before each pass."""

import dataclasses

import numpy as np

Statistics = tuple[np.ndarray, np.ndarray]
"""The mean and the unbiased variance of each channel."""


@dataclasses.dataclass
class Ties:
    """The tokens of a step that lie between two experts, noted by the routers.

    Attributes:
        width: The largest relative difference in probability between the last expert that such a token takes and the next one.
        turned: The tokens that take the next expert instead.
        found: The tokens, each as the number of its router's call in the step and its place in that call.
    """

    width: float
    turned: frozenset[tuple[int, int]] = frozenset()
    found: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    _calls: int = 0

    def choose(self, probabilities: np.ndarray, likeliest: np.ndarray, top_k: int) -> np.ndarray:
        """Returns the experts that each token takes, [N, top_k].

        Args:
            probabilities: The probability of each expert, [N, E].
            likeliest: The numbers of the experts, the likeliest first, [N, E].
            top_k: The number of experts that a token takes.
        """
        chosen, self._calls = likeliest[:, :top_k].copy(), self._calls + 1
        if top_k < likeliest.shape[1]:
            last, following = np.take_along_axis(probabilities, likeliest[:, top_k - 1 : top_k + 1], axis=-1).T
            for token in np.flatnonzero(last - following <= self.width * last).tolist():
                self.found.append((self._calls, token))
                if (self._calls, token) in self.turned:
                    chosen[token, -1] = likeliest[token, top_k]
        return chosen


@dataclasses.dataclass
class StepContext:
    """The current micro-batch as a part of its step.

    Attributes:
        keys: The key of each example, which decides what dropout keeps; None in evaluation.
        examples: The number of consecutive examples from which a batch normalization computes its statistics; 0 if it uses the
            running ones, as in evaluation.
        added: What layers add to the mean loss of this pass.
        statistics: For each batch normalization, its statistics in this step, in the order of the examples.
        ties: Notes the tokens that lie between two experts; None if they are not needed.
    """

    keys: np.ndarray | None = None
    examples: int = 0
    added: float = 0.0
    statistics: dict[str, list[Statistics]] = dataclasses.field(default_factory=dict)
    ties: Ties | None = None

    def note(self, name: str, means: np.ndarray, variances: np.ndarray) -> None:
        """Notes the statistics of a batch normalization.

        Args:
            name: The path of the layer.
            means: The means, [parts, channels].
            variances: The unbiased variances, [parts, channels].
        """
        self.statistics.setdefault(name, []).extend(zip(means, variances, strict=True))
