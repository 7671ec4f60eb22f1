"""The two-byte copies of float32 factors that products keep where they compute in two bytes, in units of two bytes."""

import dataclasses

from samestep.common.workload.models.spec import ModelSpec, Segment, parameters_of
from samestep.common.workload.saved import Kept

WIDE = 2
"""How many units of two bytes a float32 number takes."""
_FILTER_DIMS = 4
"""The dimensions of the kernel of a convolution."""


def add_kernels(model: ModelSpec, found: dict[str, Kept], item_bytes: int, least_dims: int = 2) -> None:
    """Adds the copies of kernels; only convolutions keep that of the kernel that multiplies the data, which they do not need.

    Args:
        model: The spec.
        found: What each segment keeps; the copies are added to it.
        item_bytes: The bytes of a number, which are two.
        least_dims: The fewest dimensions of a kernel that is copied.
    """
    for number, segment in enumerate(model.segments()):
        least = least_dims if number else _FILTER_DIMS
        kernels = [param for param in parameters_of(model, segment).values() if param.is_factor]
        kernels = [param for param in kernels if len(param.shape) >= least]
        each, sizes = found.get(segment.name, Kept()), [item_bytes * param.size for param in kernels]
        split = sum(size for size, param in zip(sizes, kernels, strict=True) if param.split is not None)
        found[segment.name] = dataclasses.replace(
            each, fixed_bytes=each.fixed_bytes + sum(sizes) - split, copied_bytes=split
        )


def keeps_wide(model: ModelSpec) -> bool:
    """Returns whether activations between segments are float32: a norm keeps them so, and a product keeps a two-byte copy."""
    return model.facts.sizes.layers > 0


def returns_wide(model: ModelSpec, segment: Segment) -> bool:
    """Returns whether a segment returns float32 though its products do not: rows of tables, and sums with them.

    Args:
        model: The spec.
        segment: One of its segments.
    """
    return keeps_wide(model) or any(param.role == "table" for param in parameters_of(model, segment).values())
