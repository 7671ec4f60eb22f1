"""Complex parameters, each held as its real and its imaginary part: torch's optimizers update the two as real numbers."""

from collections import Counter

import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization


class _Parts(nn.Module):
    def forward(self, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
        return torch.complex(real, imaginary)

    def right_inverse(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return value.real.clone(), value.imag.clone()


def hold_in_parts(model: nn.Module) -> None:
    """Has a model hold each complex parameter as two real ones, of which its forward pass makes the complex one.

    One that belongs to several modules is left as it is: it would become several.

    Args:
        model: The model, in place. Its parameter `w` becomes `parametrizations.w.original0` and `original1`.
    """
    owners = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
    for module in list(model.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.is_complex() and owners[id(parameter)] == 1:
                register_parametrization(module, name, _Parts())
