"""Matches attention projections that one side holds in one layer and the other in three."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from samestep.common.porting.matching.pairing import Matched, Pair
from samestep.common.workload.models.layer import ParameterLayer


def packed(source: list[ParameterLayer], target: list[ParameterLayer]) -> Matched:
    """Matches projections that one side holds in one kernel and the other in three consecutive ones: query, key and value.

    Args:
        source: The unmatched layers of the source.
        target: The unmatched layers of the target.
    """
    pairs = _packed_biases(source, target)
    for sides, change in (((source, target), "split"), ((target, source), "packed")):
        one, other = sides
        for whole in list(one):
            kernel = whole.params.get("kernel")
            if kernel is None or len(kernel.shape) != 2 or any(_kernel_shape(e) == _kernel_shape(whole) for e in other):
                continue
            for parts in zip(other, other[1:], other[2:], strict=False):
                if _are_parts(whole, parts):
                    for role, held in whole.params.items():
                        three = tuple(part.params[role] for part in parts)
                        both = (whole, parts[0]) if change == "split" else (parts[0], whole)
                        ours, theirs = ((held,), three) if change == "split" else (three, (held,))
                        pairs.append(Pair(both, ours, theirs, change))
                    one.remove(whole)
                    for part in parts:
                        other.remove(part)
                    break
    return pairs, source, target


def _kernel_shape(layer: ParameterLayer) -> tuple[int, ...]:
    return layer.params["kernel"].neutral_shape if "kernel" in layer.params else ()


def _are_parts(whole: ParameterLayer, parts: Sequence[ParameterLayer]) -> bool:
    inputs = _kernel_shape(whole)[0]
    wanted = {role: held.neutral_shape for role, held in whole.params.items()}
    return all(
        part.params.keys() == wanted.keys()
        and len(_kernel_shape(part)) > 1
        and _kernel_shape(part)[0] == inputs
        and all(3 * np.prod(held.shape) == np.prod(wanted[role]) for role, held in part.params.items())
        for part in parts
    )


def _packed_biases(source: list[ParameterLayer], target: list[ParameterLayer]) -> list[Pair]:
    """Matches the bias that torch packs although it has three kernels, as in an attention whose keys have another width."""
    pairs: list[Pair] = []
    for whole in [each for each in source if each.kind == "MultiheadAttention" and each.params.keys() == {"bias"}]:
        (held,) = whole.params.values()
        for place, parts in enumerate(zip(target, target[1:], target[2:], strict=False)):
            three = [part.params.get("bias") for part in parts]
            if all(each is not None and 3 * np.prod(each.shape) == np.prod(held.shape) for each in three):
                pairs.append(Pair((whole, parts[0]), (held,), tuple(filter(None, three)), "split"))
                source.remove(whole)
                without = [{role: each for role, each in part.params.items() if role != "bias"} for part in parts]
                target[place : place + 3] = map(lambda a, b: dataclasses.replace(a, params=b), parts, without)
                break
    return pairs
