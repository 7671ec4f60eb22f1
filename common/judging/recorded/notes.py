"""Writes the notes next to a verdict on two recorded runs: what else differs between their records."""

import math
from collections.abc import Iterator

from samestep.common.errors import count
from samestep.common.judging.recorded.bounds import Bound, one_sided
from samestep.common.judging.recorded.walk import Walk
from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.groups import trained_apart
from samestep.common.mistakes.microbatches import goes_on
from samestep.common.mistakes.mistake import few, spell

UNSEEN = (
    "from step {} on, the loss differs and no tensors were recorded, so it is not judged: record every step (--every 1)"
)


def find_notes(walk: Walk) -> tuple[str, ...]:
    """Returns notes on what differs between two records besides numbers: versions, frameworks, tensors that only one has."""
    one, other = walk.a.header, walk.b.header
    said = []
    for what, a, b in (
        ("versions", one.versions, other.versions),
        ("environment", one.environment, other.environment),
    ):
        differ = [name for name in {**a, **b} if a.get(name) != b.get(name)]
        if apart := [f"{name} {a.get(name, 'none')} and {b.get(name, 'none')}" for name in differ]:
            said.append(f"{what} of A and B: {', '.join(apart)}")
    if one.products != other.products:
        coarse = [
            f"{who} computes products in {each.products}" for who, each in (("A", one), ("B", other)) if each.products
        ]
        said.append(" and ".join(coarse) + ", and the other does not" * (len(coarse) < 2))
    said += walk.asides
    said += [walk.divisors.said()] if walk.divisors is not None and walk.divisors.names else []
    if walk.lone_loss:
        by = "by a factor that changes" if math.isnan(walk.lone_loss) else f"which is {spell(walk.lone_loss)} times A's"
        said.append(
            f"B has another loss, {by}, and no gradient shows it: either a factor is taken out again before the update, a part "
            "of the loss has no gradient or one set to zero, the loss has the same slope for other targets or another margin, "
            "like L1 and hinge losses, or rounding alone moves a weight that is added to the loss, like the last bias of a critic"
        )
    for who, run in (("A", walk.a), ("B", walk.b)):
        if run.joined:
            said.append(
                f"ranks {few([*map(str, run.joined)])} of {who} are given no examples, and begin with the weights of ranks that "
                "are: they are taken for replicas, but may be stages of a pipeline"
            )
    if one.framework != other.framework:
        said.append(f"A is a record of {one.framework}, B of {other.framework}")
    if others := reshaped(walk):
        said.append("in A and B, " + few([f"{name} is {one} and {other}" for name, (one, other) in others.items()]))
    for who, names in (("A", walk.pairing.only_a), ("B", walk.pairing.only_b)):
        if own := [name for name in names if name not in others]:
            said.append(f"only {who} has {few(own)}")
    return (*said, *_strangers(walk))


def _strangers(walk: Walk) -> Iterator[str]:
    """Yields notes on averages, teachers and target networks that are not compared."""
    if walk.pairing.strangers:
        names = few(walk.pairing.strangers)
        resumed = "".join(who for who, run in (("B", walk.a), ("A", walk.b)) if run.earlier)
        lost = f", but {resumed} continues the other run, and has lost them if its checkpoint should have held them"
        said = f"{names} of a network that no optimizer updates start from other weights and are not compared"
        yield said + lost * bool(resumed)


def reshaped(walk: Walk) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the shapes in A and in B of the tensors of the same name whose shapes differ.

    Args:
        walk: The walk over both runs.
    """
    ours, theirs = walk.pairing.only(walk.a.tensors, 0), walk.pairing.only(walk.b.tensors, 1)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs.get(name, ours[name])}


def further_notes(evidence: Evidence, bounds: tuple[Bound, Bound]) -> tuple[str, ...]:
    """Returns further notes on a step whose difference has no name.

    Args:
        evidence: The evidence of the step.
        bounds: The bounds to which A and B clip.
    """
    return (*_unlike_steps(evidence), *_written(evidence), *one_sided(*bounds))


def _unlike_steps(evidence: Evidence) -> Iterator[str]:
    """Yields notes on A and B dividing their work into different steps: with other optimizers, or with larger batches."""
    if apart := trained_apart(evidence):
        ours, theirs = map(few, apart)
        why = "one of the two has a further optimizer, another order of them, or a network that was created again"
        yield f"this step trains {ours} in A, and {theirs} in B: {why}"
    sides = {"A": evidence.a, "B": evidence.b}
    for longer, shorter in ("AB", "BA") if evidence.phase == "data" else ():
        if goes_on(sides[longer], sides[shorter]):
            yield f"{longer}'s step goes on with the examples of {shorter}'s next: its batch is larger, or it accumulates more"


def _written(evidence: Evidence) -> Iterator[str]:
    """Yields a note on weights that were overwritten after an update, if the update itself is unknown."""
    counts = {"A": evidence.a.written, "B": evidence.b.written}
    writes = [f"{who} wrote {count(number, 'tensor')}" for who, number in counts.items() if number]
    if writes and evidence.phase == "update" and not evidence.updates:
        said = " and that of ".join(writes)
        yield f"after the update, the script of {said}; whether the updates themselves differ is not known"
