"""What counts as gathered: as long as `fully_shard` holds it."""

import pytest
import torch
from torch import nn

from samestep.torch_impl.observing.exchanges import Gathered

pytestmark = pytest.mark.torch


def test_a_buffer_that_only_a_thread_of_gloo_still_holds_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = Gathered(nn.Module())
    monkeypatch.setattr(gathered, "_sharded", [{}])
    first, second = torch.zeros(8), torch.zeros(4)
    memory = first.untyped_storage()  # as the views hold it that gloo takes of a buffer
    gathered.after("fsdp::all_gather_copy_in", [None, first])
    gathered.before("aten::add", ())
    assert gathered.peak_bytes == memory.nbytes()
    del first
    gathered.after("fsdp::all_gather_copy_in", [None, second])
    gathered.before("aten::add", ())
    assert gathered.peak_bytes == 32
    third = torch.zeros(16)
    gathered.after("fsdp::all_gather_copy_in", [None, third])
    gathered.before("aten::add", ())
    assert gathered.peak_bytes == second.nbytes + third.nbytes
