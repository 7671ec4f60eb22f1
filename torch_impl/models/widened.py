"""Float64 versions of functions that torch (2.13) lacks in float64, because a reference needs all digits.

`grouped_mm` multiplies each group of rows by a matrix of its own, as mixtures of experts do.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

Product = Callable[..., torch.Tensor]


def install() -> None:
    """Makes these functions accept float64; for other dtypes, they call torch's own."""
    for owner, name in ((functional, "grouped_mm"), (torch, "_grouped_mm")):
        plain = getattr(owner, name, None)
        if plain is not None and not hasattr(plain, "__wrapped__"):
            setattr(owner, name, _either(plain))


def _either(plain: Product) -> Product:
    @functools.wraps(plain)
    def product(one: torch.Tensor, other: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
        is_ours = one.dtype == other.dtype == torch.float64 and not args and named.keys() <= {"offs"}
        return (_grouped if is_ours else plain)(one, other, *args, **named)

    return product


def _grouped(one: torch.Tensor, other: torch.Tensor, offs: torch.Tensor | None = None) -> torch.Tensor:
    """Multiplies each group without reading where groups end, so the graph of the step is the same for all.

    Args:
        one: [rows, inner], grouped along its rows or, if `other` has two dims, along `inner`; or [groups, rows, inner].
        other: [groups, inner, columns]; or [inner, columns], grouped along `inner` or, if `one` has three dims, along columns.
        offs: [groups], where each group ends along the grouped dim; None if no dim is grouped.

    Returns:
        [rows, columns]; [groups, rows, columns] if no dim or `inner` is grouped.
    """
    if offs is None:
        return one @ other
    if one.ndim == other.ndim == 2:
        groups = _groups(offs, one.shape[1])
        return torch.where(groups == torch.arange(len(offs), device=one.device)[:, None, None], one, 0.0) @ other
    products, is_of_rows = one @ other, one.ndim == 2
    places = torch.arange(products.shape[1 if is_of_rows else 2], device=one.device)
    groups = _groups(offs, len(places))
    return products[groups, places] if is_of_rows else products[groups, :, places].T


def _groups(offs: torch.Tensor, count: int) -> torch.Tensor:
    """Returns the group of each position; positions after the last group count as part of it."""
    return torch.searchsorted(offs, torch.arange(count, dtype=offs.dtype, device=offs.device), right=True).clamp(
        max=len(offs) - 1
    )
