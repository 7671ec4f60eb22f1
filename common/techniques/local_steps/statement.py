"""The outer step that all ranks take together at the end of a period, stated once.

Each rank moved its weights from those with which the period began. The negated mean of these moves serves as the gradient of an
outer optimizer: SGD with a rate and Nesterov momentum. With rate 1 and no momentum the new weights are the mean of the ranks',
which is local SGD.

References:
    Douillard et al. 2023, arXiv 2311.08105, algorithm 1 (DiLoCo); Stich 2018, arXiv 1805.09767 (local SGD).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samestep.common.techniques import Techniques

if TYPE_CHECKING:
    from samestep.common.program import Arrays


def outer_step(
    techniques: Techniques, shared: "Arrays", momentum: "Arrays", ranks: Sequence["Arrays"]
) -> tuple["Arrays", "Arrays"]:
    """Updates the shared weights by the mean move of the ranks' weights.

    Args:
        techniques: The techniques of the run, with the rate and the momentum.
        shared: The weights with which the period began.
        momentum: The running sum of outer gradients, of the same shapes; zeros before the first.
        ranks: The weights of each rank at the end of the period.

    Returns:
        The weights with which the next period begins, and the new running sum.
    """
    after, kept = {}, {}
    for name, begun in shared.items():
        gradient = sum(begun - own[name] for own in ranks) / len(ranks)
        kept[name] = techniques.outer_momentum * momentum[name] + gradient
        after[name] = begun - techniques.outer_rate * (gradient + techniques.outer_momentum * kept[name])
    return after, kept
