"""Layers that cast to float32 keep float64 where they are given it, and do what they say in every other dtype."""

import copy

import torch
from torch import nn

from samestep.torch_impl.models.uncast import find_casts, keep_float64
from tests.own.odd_zoo import casting, scalar

X = torch.linspace(-1, 1, 24).reshape(4, 6)


def rounded(module: nn.Module) -> bool:
    """Whether the gradient of the norm's weight has no more than the digits of float32."""
    module(X.double()).square().sum().backward()
    (gradient,) = (p.grad for name, p in module.named_parameters() if name == "norm.weight")
    return bool((gradient == gradient.float()).all())


def test_they_are_found_and_keep_all_digits() -> None:
    module = casting().double()
    assert find_casts(module, X.double()) == ("norm", "")
    plain = copy.deepcopy(module)
    keep_float64(module, find_casts(module, X.double()))
    assert type(module.norm).__name__ == "Norm" and isinstance(module.norm, type(plain.norm))
    assert rounded(plain) and not rounded(module)
    assert not rounded(copy.deepcopy(module))


def test_in_float32_they_do_what_they_say() -> None:
    plain = casting()
    module = copy.deepcopy(plain)
    keep_float64(module, ("norm", ""))
    assert torch.equal(module(X), plain(X)) and module(X).dtype == torch.float32
    assert torch.equal(module.bfloat16()(X.bfloat16()), plain.bfloat16()(X.bfloat16()))


def test_of_others_none_is_found() -> None:
    assert find_casts(scalar().double(), X.double()) == ()
    assert find_casts(scalar(), X.double()) == ()  # a pass that fails
