"""Adafactor against torch's own, where that factors the same dimensions."""

import numpy as np
import pytest
import torch

from samestep.common.workload.models.spec import Param
from samestep.common.workload.optimizers.adafactor import Adafactor

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("shape", [(6, 4), (7,)])
def test_its_statement_is_torchs_own(shape: tuple[int, ...]) -> None:
    stream, spec = np.random.default_rng(0), Adafactor(2**-4)
    weight = stream.normal(size=shape)
    state = {slot: np.zeros(each) for slot, each in spec.state(Param(shape, "table")).items()}
    parameter = torch.nn.Parameter(torch.tensor(weight))
    optimizer = torch.optim.Adafactor(
        [parameter], lr=spec.learning_rate, eps=(spec.epsilon, spec.floor), weight_decay=spec.weight_decay
    )
    for step in range(1, 21):
        gradient = stream.normal(size=shape) * 10.0 ** -(step % 4)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        spec.update(step, weight, gradient, state)
    np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=0, atol=1e-14)
