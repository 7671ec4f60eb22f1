"""A worker whose real torch or TensorFlow program is wrong in one way: the one that MUTANT names."""

import dataclasses
import os

from samestep.common.runtime.worker import worker
from samestep.torch_impl.planted import PLANTED


def torch_coupled_decay() -> None:
    import torch

    from samestep.torch_impl.optimizers import adamw

    def adam(spec: object, parameters: object) -> torch.optim.Optimizer:
        rates = {"lr": spec.learning_rate, "betas": (spec.beta1, spec.beta2), "eps": spec.epsilon}
        return torch.optim.Adam(parameters, **rates, weight_decay=spec.weight_decay)

    adamw.build = adam


def torch_nesterov() -> None:
    import torch

    from samestep.torch_impl.optimizers import sgd

    sgd.build = lambda spec, parameters: torch.optim.SGD(
        parameters, lr=spec.learning_rate, momentum=spec.momentum, nesterov=True
    )


def torch_transposed_kernel() -> None:
    import torch
    from torch import nn
    from torch.nn import functional

    chosen: list[nn.Linear] = []

    def forward(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        if not chosen and self.in_features == self.out_features:
            chosen.append(self)
        return functional.linear(x, self.weight.T if self in chosen else self.weight, self.bias)

    nn.Linear.forward = forward


def tf_mean_twice() -> None:
    import tensorflow as tf

    from samestep.tf_impl.program import TrainingProgram

    def exchange(self: TrainingProgram, strategy: tf.distribute.Strategy, gradients: dict) -> list:
        pairs = [(gradient, self.trained[name]) for name, gradient in gradients.items()]
        return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.MEAN, pairs)

    TrainingProgram.exchange = exchange


def tf_unsent_gradients() -> None:
    from samestep.tf_impl.program import TrainingProgram

    TrainingProgram.exchange = lambda self, strategy, gradients: list(gradients.values())


def tf_float32_hyper_parameters() -> None:
    import numpy as np

    from samestep.common import run

    right = run.read_optimizer

    def optimizer(config: object, workload: object) -> object:
        spec = right(config, workload)
        numbers = {k: float(np.float32(v)) for k, v in dataclasses.asdict(spec).items() if isinstance(v, float)}
        return dataclasses.replace(spec, **numbers)

    run.read_optimizer = optimizer


def tf_epsilon_hat() -> None:
    import tensorflow as tf

    from samestep.tf_impl.optimizers import adamw

    def update(spec: object, w: tf.Variable, g: tf.Tensor, slots: list, coefficients: tf.Tensor) -> None:
        rate, decay, first, root = tf.unstack(tf.cast(coefficients, w.dtype))
        m = slots[0].assign(spec.beta1 * slots[0] + (1 - spec.beta1) * g)
        s = slots[1].assign(spec.beta2 * slots[1] + (1 - spec.beta2) * g * g)
        w.assign(w * decay - rate * root / first * m / (tf.sqrt(s) + spec.epsilon))

    adamw.update = update


def tf_missing_causal_mask() -> None:
    import tensorflow as tf

    tf.linalg.band_part = lambda mask, lower, upper: mask


def tf_norm_epsilon() -> None:
    from samestep.tf_impl.models import layers

    layers.NORM_EPSILON = 1e-6


def main(arguments: list[str]) -> int:
    """Makes the framework wrong, then does what every worker does."""
    bug = os.environ["MUTANT"]
    (globals().get(bug) or PLANTED[bug.removeprefix("torch_")])()
    return worker.main(arguments)
