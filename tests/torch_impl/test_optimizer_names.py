"""What exports call an optimizer's state is what torch's own optimizers, and those of ours in their manner, call it."""

import importlib

import pytest

from samestep.common.runtime.checkpoints.usual_names import neutral_slot, usual_slot
from samestep.common.workload.optimizers.table import OPTIMIZERS

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_usual_names_are_torchs_keys(name: str) -> None:
    keys = importlib.import_module(f"samestep.torch_impl.optimizers.{name}").KEYS
    assert keys and {slot: usual_slot(slot) for slot in keys} == keys
    assert [neutral_slot(key) for key in keys.values()] == list(keys)
