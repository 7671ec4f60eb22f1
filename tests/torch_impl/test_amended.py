"""A module of the user's gets what its counterpart in Keras gets, where what lies between two layers is accepted."""

import numpy as np
import pytest

from samestep.common.porting.model_trace import Amendments
from samestep.common.porting.turning import Turned
from samestep.common.porting.ways.turns import turn

pytestmark = pytest.mark.torch


def test_what_goes_into_a_module_is_turned_and_gradients_flow_back() -> None:
    import torch
    from torch import nn

    from samestep.torch_impl.describing.amended import amend_module

    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.randn(5, 3, requires_grad=True)
    plain = net[1](2 * net[0](x).flip(1) + 1).detach() * 3
    steps = (("take", 1, (3, 2, 1, 0)), ("times", 2.0), ("plus", 1.0))
    turned = {"1": Turned((0, 1), steps), "": Turned((0, 1), (("times", 3.0),))}
    amend_module(net, Amendments(turned=turned))
    assert torch.allclose(net(x), plain)
    net(x).sum().backward()
    assert x.grad is not None and x.grad.abs().min() > 0


@pytest.mark.parametrize("how", ["maximum", "mean", "sum", "first position", "last position"])
def test_a_module_gets_what_is_pooled_of_another_ones_result(how: str) -> None:
    import torch
    from torch import nn

    from samestep.common.porting.turning import pool
    from samestep.torch_impl.describing.amended import amend_module

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front, self.head = nn.Conv2d(3, 4, 1), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.front(x).mean((2, 3)))

    net, x = Net(), torch.randn(2, 3, 5, 5)
    amend_module(net, Amendments(turned={"head": Turned((0, 2, 3, 1), (("pool", how),), of="front")}))
    pooled = pool(net.front(x).movedim(1, -1).detach().numpy(), how)
    assert torch.allclose(net(x), net.head(torch.from_numpy(pooled)), atol=1e-6)


HEADS = np.random.default_rng(0).normal(size=(2, 6, 12))


@pytest.mark.parametrize(
    "other",
    [
        3 * HEADS,
        HEADS - 1,
        2 * HEADS + 1,
        HEADS[:, ::-1],
        np.roll(HEADS, 4, 2),
        HEADS.reshape(2, 6, 3, 4).swapaxes(1, 2).reshape(HEADS.shape),
        HEADS.reshape(2, 3, 6, 4).swapaxes(1, 2).reshape(HEADS.shape),
    ],
)
def test_torch_does_what_turns_one_side_into_the_other(other: np.ndarray) -> None:
    import torch

    from samestep.torch_impl.describing.turned import turn as turn_tensor

    found = turn((HEADS, other))
    assert found is not None and found.name in ("scale", "order")
    made = turn_tensor(torch.from_numpy(HEADS), Turned((0, 1, 2), found.steps))
    assert np.allclose(made.numpy(), other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["ExponentialLR", "LambdaLR"])
def test_a_schedule_finds_the_rates_that_it_left(kind: str) -> None:
    """Adam adds epsilon early by another rate in each step, from which a schedule must not go on."""
    import torch

    from samestep.torch_impl.describing.amended import amend_optimizer

    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    update = torch.optim.Adam([parameter], 2**-7, eps=1e-3)
    how = {"ExponentialLR": {"gamma": 0.5}, "LambdaLR": {"lr_lambda": lambda step: 0.5**step}}[kind]
    schedule = getattr(torch.optim.lr_scheduler, kind)(update, **how)
    update.register_step_post_hook(lambda *_: schedule.step())
    amend_optimizer(update, {}, Amendments(is_adding_early=True))
    for number in range(1, 4):
        parameter.grad = torch.full_like(parameter, 0.25)
        before = parameter.detach().clone()
        update.step()
        rate, unbiased = 2**-7 * 0.5 ** (number - 1), np.sqrt(1 - 0.999**number)
        moved = rate * 0.25 * unbiased / (0.25 * unbiased + 1e-3)
        assert (before - parameter).detach().numpy() == pytest.approx(moved, rel=1e-4)
        assert update.param_groups[0]["lr"] == rate / 2 and update.param_groups[0]["eps"] == 1e-3
