"""Which list says what a model keeps, by framework and technique; all of it, inputs alone, and what is computed again."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping

from samestep.common.costs.saved_activations import kept_mixed, kept_tf, kept_torch
from samestep.common.costs.saved_activations.kept import BEHIND, Kept, KeptBySegment
from samestep.common.costs.sizes import ID_BYTES
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Segment, draws, parameters_of


@dataclasses.dataclass(frozen=True)
class Framework:
    """How a framework keeps activations, in one way of computing.

    Attributes:
        kept: Name of a model -> what its segments and its loss keep.
        in_order: Whether an accumulation step goes backward before the next one goes forward.
    """

    kept: Mapping[str, KeptBySegment]
    in_order: bool


CAST, GATHERED, TF = "torch, cast to two bytes", "torch, gathered in two bytes", "tf, cast to two bytes"
AS_IT_COMES = "torch, cast to two bytes by DeepSpeed's stage 3"
FRAMEWORKS = {
    "torch": Framework(kept_torch.KEPT, True),
    "tf": Framework(kept_tf.KEPT, False),
    CAST: Framework(kept_mixed.CAST, True),
    GATHERED: Framework(kept_mixed.GATHERED, True),
    AS_IT_COMES: Framework(kept_mixed.AS_IT_COMES, True),
    TF: Framework(kept_mixed.TF, False),
}


def way_of(run: Run, as_it_comes: bool = False) -> str:
    """Which list says what is kept.

    Args:
        run: What is trained.
        as_it_comes: Whether linear layers keep what they take as it comes.
    """
    if run.techniques.precision is None:
        return run.framework
    if run.framework == "tf":
        return TF
    if as_it_comes:
        return AS_IT_COMES
    return GATHERED if "shard" in (run.strategy.axes[:1] or ()) or run.mesh.axis("shard") > 1 else CAST


@functools.lru_cache(maxsize=8)
def keep_all(framework: str, model: ModelSpec, item_bytes: int) -> Mapping[str, Kept]:
    """Lists what segments and the loss keep.

    Args:
        framework: A key of `FRAMEWORKS`.
        model: The spec.
        item_bytes: The bytes of a number, as products take it.
    """
    return FRAMEWORKS[framework].kept[model.name](model, item_bytes)


def keeps_behind(run: Run, segment: Segment) -> bool:
    """Whether operations behind the last parameters of a segment keep anything.

    Args:
        run: What is trained.
        segment: A segment of its model.
    """
    model = run.workload.model
    return draws(model) or f"{segment.name}{BEHIND}" in keep_all(run.framework, model, run.item_bytes)


@functools.lru_cache(maxsize=8)
def keep_inputs(framework: str, model: ModelSpec, item_bytes: int) -> Mapping[str, Kept]:
    """Lists what segments keep that are computed again: of those between the first and the last, what goes into them.

    Args:
        framework: A key of `FRAMEWORKS`.
        model: The spec.
        item_bytes: The bytes of a number, as products take it.

    References:
        Chen et al., arXiv 1604.06174; Korthikanti et al., arXiv 2205.05198, section 5 (s b h numbers a block).
    """
    found = dict(keep_all(framework, model, item_bytes))
    for before, segment in itertools.pairwise(model.segments()[:-1]):
        size = _units(framework, model, before)
        kernel = next(param for param in parameters_of(model, segment).values() if param.role == "kernel")
        found[segment.name] = Kept(parts=size) if kernel.split == 0 else Kept(sequence=size)
        found.pop(f"{segment.name}{BEHIND}", None)
    if framework in ("tf", TF) and draws(model):  # the keys of the examples, from which masks are computed again
        first = model.segments()[0].name
        found[first] = dataclasses.replace(found[first], batch_bytes=found[first].batch_bytes + ID_BYTES)
    return found


def keep_again(framework: str, model: ModelSpec, item_bytes: int) -> Mapping[str, Kept]:
    """Lists what segments keep while they are computed again: inputs as well, of which products may only keep a copy.

    Args:
        framework: A key of `FRAMEWORKS`.
        model: The spec.
        item_bytes: The bytes of a number, as products take it.
    """
    found = dict(keep_all(framework, model, item_bytes))
    for before, segment in itertools.pairwise(model.segments()[:-1]) if framework == CAST else ():
        if kept_mixed.returns_wide(model, before) and not kept_mixed.keeps_wide(model):
            each = found[segment.name]
            found[segment.name] = dataclasses.replace(each, whole=each.whole + _units(framework, model, before))
    return found


def _units(framework: str, model: ModelSpec, segment: Segment) -> int:
    """What a segment returns for an example, in numbers of the type that products have."""
    is_wide = framework == TF or (framework == CAST and kept_mixed.returns_wide(model, segment))
    return math.prod(segment.outputs) * (kept_mixed.WIDE if is_wide else 1)
