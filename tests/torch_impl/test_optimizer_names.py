"""What exports call an optimizer's state is what torch's own optimizers, and those of ours in their manner, call it."""

import pytest
import torch

from samestep.common.runtime.checkpoints.usual_names import neutral_slot, usual_slot
from samestep.common.workload.optimizers.table import OPTIMIZERS, optimizer_named
from samestep.torch_impl.optimizers import build_optimizer, slot_keys

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_usual_names_are_torchs_keys(name: str) -> None:
    spec = optimizer_named(name)(learning_rate=0.5)
    parameters = [torch.nn.Parameter(torch.ones(*[2] * n)) for n in (1, 2)]
    optimizer = build_optimizer(spec, parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    kept = {key for state in optimizer.state.values() for key in state}
    assert {*spec.keys.values()} == kept - {"step"}
    assert {slot: usual_slot(slot) for slot in spec.slots} == slot_keys(spec) == spec.keys
    assert [neutral_slot(key) for key in spec.keys.values()] == list(spec.slots)
