import numpy as np
import pytest

from samestep.common.dropout import example_keys

pytestmark = pytest.mark.torch


def test_a_part_of_an_activation_keeps_what_the_whole_keeps() -> None:
    import torch

    from samestep.torch_impl.micro_batch import MICRO_BATCH
    from samestep.torch_impl.models.dropout import Dropout

    x, keys = torch.ones(4, 6, 8), torch.from_numpy(example_keys(0, 0, 0, 4))
    whole, part = Dropout(0.4, 2), Dropout(0.4, 2)
    with MICRO_BATCH.numbered(keys):
        wanted = whole(x)
        for dim in (1, -1):
            for rank in range(2):
                part.place(dim, rank, 2)
                own = x.chunk(2, dim)[rank]
                torch.testing.assert_close(part(own), wanted.chunk(2, dim)[rank])
        with MICRO_BATCH.in_parts(), MICRO_BATCH.part(1, 2):
            torch.testing.assert_close(whole(x[2:]), wanted[2:])
    assert torch.equal(whole(x), x)
    assert 0 < np.count_nonzero(wanted.numpy()) < wanted.numel()
