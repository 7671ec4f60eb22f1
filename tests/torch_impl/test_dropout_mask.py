import numpy as np
import pytest

from samestep.common.batch import Chunk
from samestep.common.keys import example_keys

pytestmark = pytest.mark.torch


def test_a_part_of_an_activation_keeps_what_the_whole_keeps() -> None:
    import torch

    from samestep.torch_impl.features.dropout import Dropout
    from samestep.torch_impl.step_context import StepContext

    x, keys = torch.ones(4, 6, 8), torch.from_numpy(example_keys(0, 0, 0, 4))
    context = StepContext()
    whole = Dropout(0.4, 2, context)
    with context.numbered(keys):
        wanted = whole(x)
        for dim in (1, -1):
            for rank in range(2):
                part = Dropout(0.4, 2, context)
                part.place(dim, Chunk(rank, 2))
                own = x.chunk(2, dim)[rank]
                torch.testing.assert_close(part(own), wanted.chunk(2, dim)[rank])
        part = Dropout(0.4, 2, context)
        part.place(1, Chunk(1, 3))
        part.place(-1, Chunk(0, 2))
        torch.testing.assert_close(part(x[:, 2:4, :4]), wanted[:, 2:4, :4])
        with context.in_parts(), context.part(1, 2):
            torch.testing.assert_close(whole(x[2:]), wanted[2:])
    assert torch.equal(whole(x), x)
    assert 0 < np.count_nonzero(wanted.numpy()) < wanted.numel()


def test_a_part_of_the_positions_is_embedded_as_in_the_whole() -> None:
    import torch

    from samestep.common.batch import Chunk
    from samestep.common.workload.models.transformer import TransformerSpec
    from samestep.torch_impl.axes.context import place_positions
    from samestep.torch_impl.models import build_model
    from samestep.torch_impl.step_context import StepContext

    model = build_model(TransformerSpec(vocabulary=11, context=6, width=8, heads=2, layers=1), StepContext())
    ids = torch.arange(12).view(2, 6) % 11
    whole = model.embedding(ids)
    for index in range(2):
        place_positions(model, Chunk(index, 2))
        torch.testing.assert_close(model.embedding(ids.chunk(2, 1)[index]), whole.chunk(2, 1)[index], rtol=0, atol=0)
