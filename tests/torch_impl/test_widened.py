"""Functions of torch that take no float64: what stands in for them computes what torch does in float32, group by group."""

import inspect

import pytest
import torch
from torch.nn import functional

from samestep.torch_impl.models import widened

pytestmark = pytest.mark.torch
ENDS = (2, 2, 7)
"""The second group is empty."""


def by_hand(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    starts = (0, *ENDS[:-1])
    if one.ndim == other.ndim == 2:
        return torch.stack([one[:, a:b] @ other[a:b] for a, b in zip(starts, ENDS, strict=True)])
    if one.ndim == 2:
        return torch.cat([one[a:b] @ other[n] for n, (a, b) in enumerate(zip(starts, ENDS, strict=True))])
    return torch.cat([one[n] @ other[:, a:b] for n, (a, b) in enumerate(zip(starts, ENDS, strict=True))], 1)


@pytest.mark.parametrize(
    ("one", "other"), [((7, 4), (3, 4, 5)), ((5, 7), (7, 4)), ((3, 5, 4), (4, 7))], ids=["rows", "inner", "columns"]
)
def test_groups_are_multiplied_one_by_one_and_have_their_gradients(
    one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    draw = torch.Generator().manual_seed(0)
    given = [torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True) for shape in (one, other)]
    ends = torch.tensor(ENDS, dtype=torch.int32)
    made, wanted = widened._grouped(*given, offs=ends), by_hand(*given)
    assert torch.allclose(made, wanted, rtol=0, atol=1e-14)
    weights = torch.randn(wanted.shape, generator=draw, dtype=torch.float64)
    gradients = (torch.autograd.grad((each * weights).sum(), given) for each in (made, wanted))
    assert all(torch.allclose(a, b, rtol=0, atol=1e-14) for a, b in zip(*gradients, strict=True))


def test_other_dtypes_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = inspect.unwrap(functional.grouped_mm)  # a user's model that was built in this process has installed it
    monkeypatch.setattr(functional, "grouped_mm", plain)
    monkeypatch.setattr(torch, "_grouped_mm", inspect.unwrap(torch._grouped_mm))
    one, other, ends = torch.randn(16, 8), torch.randn(3, 8, 16), torch.tensor((4, 9, 16), dtype=torch.int32)
    with pytest.raises(RuntimeError, match="got Double"):
        plain(one.double(), other.double(), offs=ends)
    widened.install()
    made = functional.grouped_mm(one, other, offs=ends)
    assert torch.equal(made, plain(one, other, offs=ends))
    wide = functional.grouped_mm(one.double(), other.double(), offs=ends)
    assert float((wide - made).abs().max()) <= 8 * 2**-24 * float(
        (one.abs().double() @ other.abs().double()).max()
    )  # eight products
