"""Lion, which torch (2.13) does not have."""

from collections.abc import Iterable

import torch
from torch import nn

from samestep.common.workload.optimizers.lion import Lion
from samestep.torch_impl.optimizers.state import kept


class LionOptimizer(torch.optim.Optimizer):
    """The update exactly as in `common/workload/optimizers/lion.py`."""

    def __init__(self, spec: Lion, parameters: Iterable[nn.Parameter]) -> None:
        """Stores the hyper-parameters.

        Args:
            spec: The hyper-parameters.
            parameters: The parameters to update.
        """
        super().__init__(parameters, {"lr": spec.learning_rate, "weight_decay": spec.weight_decay})
        self._betas = spec.beta1, spec.beta2

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Updates every parameter that has a gradient.

        Args:
            closure: Must be None, because the gradients are already computed.
        """
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group["lr"], group["weight_decay"])

    def _update(self, parameter: torch.Tensor, gradient: torch.Tensor, rate: float, decay: float) -> None:
        (beta1, beta2), moment = self._betas, kept(self.state[parameter], "exp_avg", parameter)
        direction = moment.mul(beta1).add_(gradient, alpha=1 - beta1).sign_()
        parameter.mul_(1 - rate * decay).add_(direction, alpha=-rate)
        moment.mul_(beta2).add_(gradient, alpha=1 - beta2)


build = LionOptimizer
