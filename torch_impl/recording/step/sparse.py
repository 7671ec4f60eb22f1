"""Reads examples in sparse tensors, such as the graphs of a graph network; their hashes are those of the dense tensor.

A zero adds nothing to the hash of an example, so the numbers that a sparse tensor stores are enough.
"""

import torch

from samestep.common.steps.rows import is_channels_last

_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


def has_sparse_rows(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is sparse and stores single numbers, not dense blocks.

    Args:
        tensor: Any tensor.
    """
    return tensor.layout in _LAYOUTS and tensor.ndim > 1 and not tensor.dense_dim() and not tensor.is_complex()


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the numbers that a sparse tensor stores, as a view of its memory.

    Args:
        tensor: The tensor.
    """
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


def entries_of(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the numbers of a sparse tensor with their positions.

    Args:
        tensor: The tensor, [examples, ...].

    Returns:
        For each number, its example, its place within the example, and the number itself.
    """
    entries = tensor.detach().to_sparse_coo().coalesce()
    examples, *places = entries.indices()
    place, dims = torch.zeros_like(examples), [*zip(tensor.shape[1:], places, strict=True)]
    if is_channels_last(tensor.shape):
        dims = [dims[2], *dims[:2]]
    for size, each in dims:
        place = place * size + each
    return examples, place, entries.values()
