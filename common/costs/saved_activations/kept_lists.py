"""What a model keeps if segments are recomputed: their inputs alone, and more while they are recomputed."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping

from samestep.common.catalog import framework_info
from samestep.common.costs.saved_activations.copies import keeps_wide
from samestep.common.costs.sizes import ID_BYTES
from samestep.common.features.used import takes_keys
from samestep.common.strategy import Run
from samestep.common.techniques.used import without
from samestep.common.workload.models.spec import ModelSpec, Segment, parameters_of
from samestep.common.workload.saved import BEHIND, Kept, SavedLists, keep_all


def keeps_behind(run: Run, segment: Segment) -> bool:
    """Returns whether any operation after the last parameters of a segment keeps something.

    Args:
        run: What is trained.
        segment: A segment of its model.
    """
    in_one_dtype = dataclasses.replace(run, techniques=without("gradient_error", run.techniques))
    model, lists = run.workload.model, framework_info(run.framework).saved(in_one_dtype, False)
    assert lists is not None  # only frameworks that split segments get here
    return takes_keys(model) or f"{segment.name}{BEHIND}" in keep_all(lists, model, run.item_bytes)


@functools.lru_cache(maxsize=64)
def keep_inputs(lists: SavedLists, model: ModelSpec, item_bytes: int) -> Mapping[str, Kept]:
    """Lists what segments that are recomputed keep: those between the first and the last keep their inputs.

    Args:
        lists: The framework's lists of what is kept.
        model: The spec.
        item_bytes: The bytes of a number, as products take it.

    References:
        Chen et al., arXiv 1604.06174; Korthikanti et al., arXiv 2205.05198, section 5 (s b h numbers a block).
    """
    found = dict(keep_all(lists, model, item_bytes))
    for before, segment in itertools.pairwise(model.segments()[:-1]):
        size = _units(lists, model, before)
        kernel = next(param for param in parameters_of(model, segment).values() if param.role == "kernel")
        found[segment.name] = Kept(parts=size) if kernel.split == 0 else Kept(sequence=size)
        found.pop(f"{segment.name}{BEHIND}", None)
    if lists.keeps_keys and takes_keys(model):  # the keys of the examples, from which masks are computed again
        first = model.segments()[0].name
        found[first] = dataclasses.replace(found[first], batch_bytes=found[first].batch_bytes + ID_BYTES)
    return found


def keep_again(lists: SavedLists, model: ModelSpec, item_bytes: int) -> Mapping[str, Kept]:
    """Lists what segments keep while they are recomputed: their inputs as well, of which products may keep only a copy.

    Args:
        lists: The framework's lists of what is kept.
        model: The spec.
        item_bytes: The bytes of a number, as products take it.
    """
    found = dict(keep_all(lists, model, item_bytes))
    for before, segment in itertools.pairwise(model.segments()[:-1]) if lists.copies else ():
        if lists.units(model, before) > 1 and not keeps_wide(model):
            each = found[segment.name]
            found[segment.name] = dataclasses.replace(each, whole=each.whole + _units(lists, model, before))
    return found


def _units(lists: SavedLists, model: ModelSpec, segment: Segment) -> int:
    """Returns the size of a segment's outputs for an example, in numbers of the type that products take."""
    return math.prod(segment.outputs) * lists.units(model, segment)
