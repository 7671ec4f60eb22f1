"""The message about layers that only one side has: their likeliest partners, and between which layers one is missing."""

from collections import Counter
from collections.abc import Sequence

from samestep.common.porting.families import family_of
from samestep.common.porting.matching.likeness import likeness
from samestep.common.porting.matching.pairing import Pair
from samestep.common.workload.models.layer import ParameterLayer

_MOST = 3
"""The most layers that are named one by one."""


def explain_left(
    left: tuple[Sequence[ParameterLayer], Sequence[ParameterLayer]],
    layers: tuple[Sequence[ParameterLayer], Sequence[ParameterLayer]],
    pairs: Sequence[Pair],
    frameworks: Sequence[str],
) -> str:
    """Returns the message that parameters are left over.

    Args:
        left: The unmatched layers of the source, and of the target.
        layers: All layers of both, in the order of execution.
        pairs: The matched parameters.
        frameworks: The frameworks of both.
    """
    sides = []
    for framework, some in zip(frameworks, left, strict=True):
        held = [f"{each.native} {list(each.shape)}" for layer in some for each in layer.params.values()]
        sides.append(f"{framework} has {', '.join(held) or 'none'}")
    start = f"parameters are left without a counterpart: {'; '.join(sides)}"
    if all(left):
        partners = [f"{one.name or 'the model itself'} with {_nearest(one, left[1]).name}" for one in left[0][:_MOST]]
        a, b = frameworks
        return (
            f"{start}; the likeliest partners are {', '.join(partners)}, whose shapes do not fit; make them alike, or say "
            f"which is which with `names={{'{a} name': '{b} name'}}` in your samestep.Model."
        )
    side = 0 if left[0] else 1
    said = [_missing(each, side, layers, pairs, frameworks) for each in left[side][:_MOST]]
    return f"{start}: {'; '.join(said)}; add what is missing."


def _missing(
    layer: ParameterLayer,
    side: int,
    layers: tuple[Sequence[ParameterLayer], Sequence[ParameterLayer]],
    pairs: Sequence[Pair],
    frameworks: Sequence[str],
) -> str:
    """Says where the other side lacks a layer, and which of its layers is most like it."""
    other = frameworks[1 - side]
    belongs = {pair.layers[side].name: pair.layers[1 - side] for pair in pairs}
    names = [each.name for each in layers[side]]
    place = names.index(layer.name)
    before = next((belongs[name].name for name in reversed(names[:place]) if name in belongs), "")
    after = next((belongs[name].name for name in names[place + 1 :] if name in belongs), "")
    where = " ".join(filter(None, (before and f"after `{before}`", after and f"before `{after}`")))
    text = f"{other} lacks a layer like `{layer.name}` ({layer.kind})" + (f" {where}" if where else "")
    if not layers[1 - side]:
        return text
    near = _nearest(layer, layers[1 - side])
    own = next((pair.layers[side].name for pair in pairs if pair.layers[1 - side].name == near.name), "")
    return text + f", its likeliest partner is `{near.name}`" + (f", which is matched with `{own}`" if own else "")


def _nearest(layer: ParameterLayer, others: Sequence[ParameterLayer]) -> ParameterLayer:
    return max(others, key=lambda other: _alike(layer, other))


def _alike(one: ParameterLayer, other: ParameterLayer) -> float:
    ours, theirs = (
        Counter(size for held in layer.params.values() for size in held.neutral_shape) for layer in (one, other)
    )
    shared = (ours & theirs).total() / max(ours.total(), theirs.total(), 1)
    return shared + likeness(one, other) + (family_of(one.kind) == family_of(other.kind))
