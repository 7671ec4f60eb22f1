"""Mistakes in what a step is given: examples that are missing, doubled, repeated or in another order."""

import collections

from samestep.common.errors import count
from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.microbatches import goes_on
from samestep.common.mistakes.mistake import Mistake, Words

FEW = 0.5
"""The share of a batch up to which examples count as missing or doubled; beyond it, they are other examples."""


def _same_on_ranks(evidence: Evidence) -> Words | None:
    """Checks that some ranks of B were called on the same examples, and that A was called on more."""
    rows = [each for each in (evidence.b.rows or {}).values() if each]
    ranks = [rank for rank, each in (evidence.b.rows or {}).items() if rows.count(each) > 1]
    is_fewer = len(set(evidence.b.examples)) < len(set(evidence.a.examples))
    if not ranks or evidence.b.shares_layers or _groups(evidence.a) or not is_fewer:
        return None
    return {"ranks": " and ".join(map(str, ranks))}


def _other_on_shares(evidence: Evidence) -> Words | None:
    """Checks that ranks share layers in both runs, and that those of a group got the same examples in A but not in B."""
    ours, theirs = _groups(evidence.a), _groups(evidence.b)
    if not (evidence.a.shares_layers and evidence.b.shares_layers and ours):
        return None
    if evidence.a.world != evidence.b.world:  # it is unknown which ranks of B are a group
        return None if theirs else {"ranks": "some ranks"}
    split = [group for group in ours if group not in theirs]
    if not split or any(group not in ours for group in theirs):  # B has other groups
        return None
    return {"ranks": ", and ".join(f"ranks {' and '.join(map(str, group))}" for group in split)}


def _groups(side: Side) -> list[list[int]]:
    """Returns each group of two or more ranks that were given the same examples."""
    ranks_of = collections.defaultdict[tuple[int, ...], list[int]](list)
    for rank, rows in (side.rows or {}).items():
        ranks_of[rows].append(rank)
    return [ranks for rows, ranks in ranks_of.items() if rows and len(ranks) > 1]


def _doubled(evidence: Evidence) -> Words | None:
    """Checks that as many examples are repeated as are missing."""
    more, less = evidence.b.examples - evidence.a.examples, evidence.a.examples - evidence.b.examples
    b = evidence.b
    is_again = b.again and not b.alone and (b.comes_more_often if b.repeated is None else b.repeated)
    is_known = set(more) <= set(evidence.a.examples) or (is_again and not less)
    is_other = more.total() > FEW * evidence.a.examples.total() or goes_on(b, evidence.a)
    if not more or not is_known or is_other or _is_called_again(evidence, set(more)):
        return None
    words = {"more": count(more.total(), "example"), "rank": _ranks_of(evidence.b, set(more))}
    return words | {"less": f" and is missing {count(less.total(), 'example')}" if less else ""}


def _is_called_again(evidence: Evidence, more: set[int]) -> bool:
    """Returns whether B calls its model again on all examples of a call or of the step, which no sampler does.

    If A has some examples more often than others, that cannot be told: they may be the single words of sentences.
    """
    if len(set(evidence.a.examples.values())) > 1:
        return True
    if evidence.a.examples.total() == evidence.b.examples.total():
        return len(more) > 1 and more == set(evidence.b.examples)  # e.g. a query is left out for its support
    return evidence.b.calls_again(more) or more == set(evidence.b.examples)


def _dropped(evidence: Evidence) -> Words | None:
    """Checks that B has only some of A's examples, and that A's others were not repeated within a pass to fill up a batch."""
    ours, theirs = evidence.a.examples, evidence.b.examples
    less = ours - theirs
    is_again = evidence.b.repeated == 0 and less.total() <= (evidence.a.repeated or 0)
    if (is_again and (evidence.step > 0 or set(less) <= set(theirs))) or goes_on(evidence.a, evidence.b):
        return None
    is_called_again, is_of_words = set(less) <= set(theirs), len({*ours.values()}) > 1  # e.g. of a packed text
    targets = [0 if each.targets is None else each.targets.total() for each in (evidence.a, evidence.b)]
    has_no_target = targets[0] == targets[1] > 0  # e.g. what a teacher is called on
    if theirs - ours or not theirs or is_called_again or is_of_words or has_no_target or evidence.a.is_elsewhere:
        return None
    return {"less": count(less.total(), "example"), "total": str(ours.total())}


def _ranks_of(side: Side, examples: set[int]) -> str:
    ranks = [str(rank) for rank, rows in (side.rows or {}).items() if examples & set(rows)]
    return f" on rank {' and '.join(ranks)}" if len(ranks) < side.world else ""


def _same_order(evidence: Evidence) -> Words | None:
    """Checks that B repeats one of its earlier steps, while A repeats examples in new combinations: a later epoch.

    One of several ranks gets other examples in each epoch. Then all that B is given must lie within one pass, and both must begin
    another one.
    """
    now, own = evidence.b.digests[-1] if evidence.b.digests else None, evidence.a.digests
    earlier = [number for number, digest in enumerate(evidence.b.digests[:-1]) if digest == now]
    in_between = (len(own) - 1 - max(earlier, default=0)) * evidence.a.examples.total()  # if not all, in one pass
    is_later = evidence.a.is_seen_before and in_between >= evidence.a.distinct
    is_again = evidence.a.begins_pass and evidence.b.begins_pass and in_between >= evidence.b.distinct > 0
    is_known = now is not None and earlier and own[-1] not in own[:-1] and (is_later or is_again)
    if not is_known or goes_on(evidence.a, evidence.b):
        return None
    return {"earlier": str(earlier[-1])}


def _found_at(evidence: Evidence) -> list[int]:
    """Returns the steps of A that have the examples of B's step, nearest first; empty if B's place in the data is unknown."""
    a, b = evidence.a, evidence.b
    now = b.digests[-1] if b.digests else None
    is_known = now is not None and (evidence.gradients or a.examples.total() == b.examples.total())
    every = a.given.items() if is_known and now != a.digests[-1] else ()
    return sorted(
        (number for number, digest in every if digest == now), key=lambda each: abs(each - len(b.digests) + 1)
    )


def _shifted(evidence: Evidence) -> Words | None:
    """Checks that B's step has the examples of another step of A, and B's next step, if any, those of A's following one."""
    a, b, found, after = evidence.a, evidence.b, _found_at(evidence), evidence.a.given
    if known := [each for each in found if b.later and each + 1 in after]:
        found = [each for each in known if after[each + 1] == b.later[0]]
    is_called_again = {*a.examples} == {*b.examples}  # the model is called again on the same examples
    is_repeated = 0 in (a.repeated, b.repeated) and (a.repeated or b.repeated)  # this is another mistake
    is_named = is_called_again or is_repeated or b.earlier or (not a.earlier and _reordered(evidence) is not None)
    if not found or is_named or not (known or evidence.step):  # the first step may be of another loader
        return None
    return {"own": "own " * bool(a.earlier), "other": str(found[0] + len(a.earlier))}


def _last_dropped(evidence: Evidence) -> Words | None:
    """Checks that A's step has fewer examples than B's, which has those of A's next step, the first of a pass."""
    ours, theirs = evidence.a.examples.total(), evidence.b.examples.total()
    is_next = _found_at(evidence)[:1] == [len(evidence.b.digests)]
    return {"less": count(ours, "example"), "usual": str(theirs)} if is_next and 0 < ours < theirs else None


def _reordered(evidence: Evidence) -> Words | None:
    a, b = evidence.a, evidence.b
    # Steps of other sizes are another mistake.
    is_cut = goes_on(a, b) or goes_on(b, a) or a.examples <= b.examples or b.examples <= a.examples
    return {} if {a.again, a.alone, b.again, b.alone} == {0} and not is_cut else None


def _repeated(evidence: Evidence) -> Words | None:
    """Checks that only B repeats examples within a pass; a few among many that A never has may be alike by chance."""
    ours, theirs = evidence.a.repeated, evidence.b.repeated
    is_known = theirs and ours == 0 and theirs >= (evidence.b.alone or 0)
    return {"more": count(theirs, "example")} if theirs and is_known else None


def _overlapping(evidence: Evidence) -> Words | None:
    """Checks that over all steps B repeats as many of A's examples as it misses, and that several ranks share them."""
    a, b = evidence.a, evidence.b
    if not b.again or b.alone or b.world < 2 or b.again != (a.again or 0) + (a.alone or 0):
        return None
    return {"more": count(b.again, "example")}


EXAMPLES = (
    Mistake(
        "same_data_on_every_worker",
        ("data",),
        _same_on_ranks,
        "ranks {ranks} of {b} were given the same examples",
        "tensorflow/tensorflow#56513",
        of_step="every worker was given the first shard's examples",
    ),
    Mistake(
        "shares_given_other_data",
        ("data",),
        _other_on_shares,
        "{ranks} of {b} were given different examples, but hold parts of the same layers: under tensor parallelism, all "
        "ranks of a group need the same examples",
        "deepspeedai/DeepSpeed#7199",
    ),
    Mistake(
        "padded_sample_twice",
        ("data",),
        _doubled,
        "{b} repeats {more} of {a}'s{rank}{less}: a sampler pads its last batch, or an example is in the data or in a "
        "buffer twice",
        "mosaicml/composer#2218",
        of_step="the last example repeats the first: a sampler padded the batch",
    ),
    Mistake(
        "dropped_shard",
        ("data",),
        _dropped,
        "{b} is missing {less} out of {a}'s {total}",
        "tensorflow/tensorflow#42146",
        of_step="the gradient of the last of {devices} shards is missing from the sum",
    ),
    Mistake(
        "same_order_each_epoch",
        ("data",),
        _same_order,
        "{b} is given the examples of its own step {earlier} again, and {a} is not: the epoch repeats the order of an "
        "earlier one, as it does without set_epoch, or if a resumed run loses its epoch",
        "pytorch/pytorch#31771",
        of_step="the examples come in the order of the first epoch: no later epoch was shuffled again",
    ),
    Mistake(
        "last_batch_dropped",
        ("data",),
        _last_dropped,
        "{a} takes a step on a batch of {less} where {b} leaves it out and goes on with the {usual} of {a}'s next step, as "
        "drop_last does with the last, incomplete batch of a pass",
    ),
    Mistake(
        "position_lost",
        ("data",),
        _shifted,
        "{b} is given the examples of {a}'s {own}step {other}: its place in the data was lost or shifted",
        "huggingface/transformers#40245",
        of_step="the data started over where the run resumed: its position in them was lost",
    ),
    Mistake(
        "shares_overlap",
        ("data",),
        _overlapping,
        "over all steps, {b} repeats {more} of {a}'s and is missing as many: its ranks shuffle with different seeds, or "
        "their shares overlap",
        "mlcommons/training#625",
    ),
    Mistake(
        "repeated_in_a_pass",
        ("data",),
        _repeated,
        "within one pass through its data (of a DataLoader, or an epoch of Keras), {b} is given {more} again, and {a} none: its "
        "workers all read the same data, its sampler repeats them, or the pass is longer than the data",
        "huggingface/datasets#3423",
    ),
    Mistake(
        "other_order",
        ("data",),
        _reordered,
        "over all steps both have the same examples, but in another order: another seed, another shuffle, or another "
        "split over ranks",
    ),
)
