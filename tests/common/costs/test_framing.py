"""What a backend sends in addition to the tensors."""

import pytest

from samestep.common.costs.sizes import sent_bytes
from samestep.common.ledger import Send


@pytest.mark.parametrize("item_bytes", [4, 8])
def test_flags_have_the_same_framing_in_every_dtype(item_bytes: int) -> None:
    """Eight flags fill all parts of a ring of four ranks; each rank was measured to send 1,776 bytes (torch 2.13)."""
    send = Send("backward", "all_reduce", "all", 4, 32, item_bytes=4)
    assert sent_bytes(send, "gloo", item_bytes) == 48 + 3 * 4 * 144 == 1776
