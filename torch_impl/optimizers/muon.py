"""Muon in the dtype of the run; torch's own (2.13) always orthogonalizes in bfloat16."""

import math
from collections.abc import Collection, Iterable

import torch
from torch import nn

from samestep.common.workload.optimizers.muon import COEFFICIENTS, LEAST_NORM, ROUNDS, Muon, move
from samestep.torch_impl.optimizers.state import kept


class MuonOptimizer(torch.optim.Optimizer):
    """The update exactly as in `common/workload/optimizers/muon.py`."""

    def __init__(self, spec: Muon, parameters: Iterable[nn.Parameter], matrices: Collection[nn.Parameter]) -> None:
        """Stores the hyper-parameters.

        Args:
            spec: The hyper-parameters.
            parameters: The parameters to update.
            matrices: The parameters to update as matrices.
        """
        super().__init__(parameters, {"lr": spec.learning_rate, "weight_decay": spec.weight_decay})
        self._spec, self._matrices = spec, set(matrices)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Updates every parameter that has a gradient.

        Args:
            closure: Must be None, because the gradients are already computed.
        """
        for group in self.param_groups:
            for parameter in (each for each in group["params"] if each.grad is not None):
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                update = self._move_matrix if parameter in self._matrices else self._move
                update(parameter, parameter.grad, group["lr"])

    def _move_matrix(self, parameter: nn.Parameter, gradient: torch.Tensor, rate: float) -> None:
        moment, beta = kept(self.state[parameter], "exp_avg", parameter), self._spec.beta1
        moment.mul_(beta).add_(gradient, alpha=1 - beta)
        ahead = moment.mul(beta).add_(gradient, alpha=1 - beta)
        parameter.add_(orthogonalized(ahead), alpha=-rate * move(*parameter.shape))

    def _move(self, parameter: nn.Parameter, gradient: torch.Tensor, rate: float) -> None:
        spec, state = self._spec, self.state[parameter]
        first, second = (kept(state, key, parameter) for key in ("exp_avg", "exp_avg_sq"))
        state["step"] = state.get("step", torch.tensor(0.0)) + 1
        first.mul_(spec.beta1).add_(gradient, alpha=1 - spec.beta1)
        second.mul_(spec.beta2).addcmul_(gradient, gradient, value=1 - spec.beta2)
        t = int(state["step"])
        root = (second.sqrt() / math.sqrt(1 - spec.beta2**t)).add_(spec.epsilon)
        parameter.addcdiv_(first, root, value=-rate / (1 - spec.beta1**t))


def orthogonalized(matrix: torch.Tensor) -> torch.Tensor:
    """Returns the matrix with the same singular vectors and with singular values near one."""
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm().clamp(min=LEAST_NORM)
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    for _ in range(ROUNDS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if is_tall else x


build = MuonOptimizer
