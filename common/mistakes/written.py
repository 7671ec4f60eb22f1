"""Weights that scripts write outside of updates: after an update, or within a step before another backward pass."""

from samestep.common.errors import count
from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.mistake import Mistake, Words, near, spell
from samestep.common.mistakes.seen_tensor import common_ratio, differing, parameters

_BETWEEN = "between the step before and this one, as a callback does that restores or averages them"
_AFTER = "after the update, which is the same in both, and before the next step, as when they are clipped, restored or averaged"


def _writes(evidence: Evidence) -> Words | None:
    """Checks that only B's script has written weights, after an update that is the same in both."""
    written = evidence.b.written
    if not written or evidence.a.written or differing(parameters(evidence.updates)):
        return None
    if evidence.phase == "update" and not evidence.updates:  # the update may differ as well
        return None
    when = _BETWEEN if evidence.phase == "loss" else _AFTER
    return {"tensors": count(written, "tensor"), "when": when}


def _writes_otherwise(evidence: Evidence) -> Words | None:
    """Checks that the updates are the same, and that both scripts then write different weights."""
    if not (evidence.a.written and evidence.b.written and evidence.updates):
        return None
    if differing(parameters(evidence.updates)):
        return None
    ratio = common_ratio(parameters(evidence.writes))
    return {"how": "" if ratio is None or near(ratio, 1.0) else f": B moves them {spell(ratio)} times as far as A"}


def _moves_otherwise(evidence: Evidence) -> Words | None:
    """Checks that both runs move their weights within the step, and that B's moves are A's times one factor."""
    moved = parameters(evidence.moved)
    ratio = common_ratio(moved) if _begins_alike(evidence) else None
    is_of_both = any(each.one.any() for each in moved) and any(each.other.any() for each in moved)
    return {"ratio": spell(ratio)} if is_of_both and ratio and not near(ratio, 1.0) else None


def _does_not_move(evidence: Evidence) -> Words | None:
    """Checks that only A moves its weights within the step."""
    moved = parameters(evidence.moved)
    is_of_one = bool(differing(moved)) and not any(each.other.any() for each in moved)
    if not is_of_one or not _begins_alike(evidence) or not evidence.a.passes > 1:
        return None
    return {"how": "has no such pass" if evidence.b.passes < evidence.a.passes else "does not move them"}


def _begins_alike(evidence: Evidence) -> bool:
    """Returns whether the first backward passes of the step have the same loss, on the same examples."""
    one, other = _first_loss(evidence.a), _first_loss(evidence.b)
    is_known = evidence.a.rows is None or evidence.a.examples.keys() == evidence.b.examples.keys()
    return bool(one and other) and is_known and near(other / one, 1.0)


def _first_loss(side: Side) -> float:
    """Returns the loss of the first backward pass, averaged over the ranks; 0 if unknown."""
    first = side.parts[:: side.passes] if side.passes else ()
    return sum(first) / len(first) if len(first) * side.passes == len(side.parts) and first else 0.0


MOVED_WITHIN = (
    Mistake(
        "moved_otherwise",
        ("loss", "gradient"),
        _moves_otherwise,
        "within the step, B moves its weights {ratio} times as far as A before the last backward pass: another radius of "
        "sharpness-aware minimization (SAM), or another factor on what is added to them",
    ),
    Mistake(
        "not_moved",
        ("data", "loss", "gradient"),
        _does_not_move,
        "{a} moves its weights within the step before another backward pass, as sharpness-aware minimization (SAM) does, and {b} "
        "{how}",
    ),
)
WRITTEN = (
    Mistake(
        "weights_written",
        ("loss", "update"),
        _writes,
        "the script of {b} alone wrote weights {when}: {tensors} changed",
    ),
    Mistake(
        "weights_written_otherwise",
        ("update",),
        _writes_otherwise,
        "the update is the same in both, and both scripts then write weights before the next step, but not the same ones{how}",
    ),
)
