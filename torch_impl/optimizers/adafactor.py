"""Adafactor; torch's own (2.13) would factor filters by height and width, because of torch's layout of filters."""

import dataclasses
from collections.abc import Collection, Iterable

import torch
from torch import nn

from samestep.common.workload.optimizers.adafactor import FACTORS, WHOLE, Adafactor
from samestep.torch_impl.optimizers.state import kept


class AdafactorOptimizer(torch.optim.Optimizer):
    """The update exactly as in `common/workload/optimizers/adafactor.py`."""

    def __init__(self, spec: Adafactor, parameters: Iterable[nn.Parameter], matrices: Collection[nn.Parameter]) -> None:
        """Stores the hyper-parameters.

        Args:
            spec: The hyper-parameters.
            parameters: The parameters to update.
            matrices: The parameters that torch stores transposed, which are kernels but not tables.
        """
        super().__init__(parameters, {"lr": spec.learning_rate, "weight_decay": spec.weight_decay})
        self._spec, self._transposed = spec, set(matrices)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Updates every parameter that has a gradient.

        Args:
            closure: Must be None, because the gradients are already computed.
        """
        for group in self.param_groups:
            spec = dataclasses.replace(self._spec, learning_rate=group["lr"])
            for parameter in (each for each in group["params"] if each.grad is not None):
                state = self.state[parameter]
                state["step"] = state.get("step", torch.tensor(0.0)) + 1
                step = int(state["step"])
                length = max(spec.floor, _rms(parameter)) * spec.relative_rate(step)
                estimate = self._estimate(parameter, parameter.grad.square(), spec.kept(step))
                direction = parameter.grad / estimate.sqrt().clamp_(min=spec.epsilon)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(direction, alpha=-length / max(1.0, _rms(direction)))

    def _estimate(self, parameter: nn.Parameter, squares: torch.Tensor, share: float) -> torch.Tensor:
        """Updates the moments of a parameter and returns the squares that they estimate."""
        if parameter.ndim != 2:
            return self._average(parameter, self._spec.keys[WHOLE], squares, share)
        along = (0, 1) if parameter in self._transposed else (1, 0)
        rows, columns = (
            self._average(parameter, slot, squares.mean(dim, keepdim=True), share)
            for slot, dim in zip(FACTORS, along, strict=True)
        )
        mean = rows.mean()
        return rows * columns / torch.where(mean == 0, 1, mean)

    def _average(self, parameter: nn.Parameter, key: str, seen: torch.Tensor, share: float) -> torch.Tensor:
        return kept(self.state[parameter], key, seen).mul_(share).add_(seen, alpha=1 - share)


def _rms(values: torch.Tensor) -> float:
    return values.square().mean().sqrt().item()


build = AdafactorOptimizer
