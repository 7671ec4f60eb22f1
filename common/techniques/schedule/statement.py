"""Learning-rate schedules: the share of the learning rate in each step.

With t = 1, 2, ... the step, W the warm-up steps and D the step at which the decay ends:

    warm-up    t <= W:  t / W
    constant   t > W:   1
    linear     t > W:   1 - p             p = (t - 1 - W) / (D - W), and no more than 1
    cosine     t > W:   (1 + cos(pi p)) / 2

The first step after the warm-up takes the full rate, and the first step whose rate is zero is D + 1: no step up to D is
wasted.

References:
    Goyal et al. 2017, arXiv 1706.02677 (warm-up); Loshchilov and Hutter 2017, arXiv 1608.03983 (cosine).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

from samestep.common.techniques import Techniques
from samestep.common.workload.optimizers.spec import OptimizerSpec

DECAYS: Mapping[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,
}
"""Schedule -> function from the share of the decay that is over to the share of the rate."""


def rate_share(techniques: Techniques, step: int) -> float:
    """Computes the share of the learning rate in a step.

    Args:
        techniques: The schedule, its warm-up, and where its decay ends.
        step: t, from 1.
    """
    warmup = techniques.warmup_steps
    if step <= warmup:
        return step / warmup
    if techniques.decay_steps is None:
        return 1.0
    progress = min(1.0, (step - 1 - warmup) / (techniques.decay_steps - warmup))
    return DECAYS[techniques.learning_rate_schedule](progress)


def at_step(optimizer: OptimizerSpec, techniques: Techniques, step: int) -> OptimizerSpec:
    """Gives an optimizer the learning rate of one step.

    Args:
        optimizer: The optimizer with the rate of the run.
        techniques: The techniques of the run.
        step: t, from 1.
    """
    if not techniques.has_schedule:
        return optimizer
    rate = optimizer.learning_rate * rate_share(techniques, step)
    return dataclasses.replace(optimizer, learning_rate=rate)
