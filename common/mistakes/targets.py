"""Mistakes in what a loss is computed from: other targets, another formula, a model in evaluation mode."""

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words, few, spell
from samestep.common.mistakes.seen_tensor import common_ratio, differing
from samestep.common.steps.argument_names import called
from samestep.common.steps.gradient_transforms import CLIP_VALUE


def _targets_differ(evidence: Evidence) -> Words | None:
    """Checks that equally many examples have targets, some of them different. If no module is called, these are the data."""
    a, b = evidence.a.targets, evidence.b.targets
    if a is None or b is None:
        return None
    what = "data" if evidence.a.rows is None else "targets"
    return {"what": what, "count": str((a - b).total()), "total": str(a.total())}


def _other_loss(evidence: Evidence) -> Words | None:
    """Checks that the same examples and weights give another loss, which no factor explains."""
    ratio = evidence.loss_ratio
    rows = evidence.a.rows is not None and evidence.a.examples == evidence.b.examples
    # tensors that only one run has, or that a script has written, cannot be compared
    has_others = evidence.a.only or evidence.b.only or evidence.a.written or evidence.b.written
    is_known = bool(evidence.moves) and not differing(evidence.moved)  # else the weights before the step may differ
    if ratio is None or not rows or has_others or not is_known or common_ratio(evidence.gradients) is not None:
        return None
    are_same = evidence.a.targets is not None and evidence.a.targets == evidence.b.targets
    why, but = "and no single factor explains it", ", nor a target that is recorded"
    if any(evidence.scalars(CLIP_VALUE)):
        why = f"{spell(ratio)} times A's, and clipping by value hides whether every gradient has that factor"
        but = "; no target that is recorded differs"
    ours, theirs = evidence.a.whole_arguments, evidence.b.whole_arguments
    others = [called(name) for name in ours if name in theirs and ours[name] != theirs[name]]
    more = f"what the model is given as {few(others)}, which is no part of an example and differs, " if others else ""
    said = {"why": why, "arguments": more}
    return said | ({"but": but, "targets": ""} if are_same else {"but": "", "targets": "other targets, "})


def _class_weights(evidence: Evidence) -> Words | None:
    """Checks that the same examples, targets and weights give another loss, whose function gets different class weights."""
    found, said = _other_loss(evidence), said_weights(evidence)
    return {"what": said} if said and found and not found["targets"] else None  # targets may differ


def said_weights(evidence: Evidence) -> str:
    """Returns a clause on which losses are given class weights, if these differ; "" otherwise.

    Args:
        evidence: The evidence of the step.
    """
    ours, theirs = evidence.a.class_weights, evidence.b.class_weights
    if ours == theirs:
        return ""
    alone = "A" if not any(theirs) else "B" if not any(ours) else ""
    whose, others = (f"function of {alone} alone is", "") if alone else ("functions of A and B are", "different ")
    return f"the loss {whose} given {others}class weights"


def _evaluates(evidence: Evidence) -> Words | None:
    """Checks that only B's model is in evaluation mode."""
    return {} if evidence.b.is_evaluated and not evidence.a.is_evaluated else None


MODE = (
    Mistake(
        "evaluation_mode",
        ("loss", "gradient", "update"),
        _evaluates,
        "the model of {b} is in evaluation mode, where dropout does nothing and running statistics stand still: its call of "
        "model.train() is missing",
        "fartashf/vsepp#4",
    ),
)
TARGETS = (
    Mistake(
        "targets_differ",
        ("targets",),
        _targets_differ,
        "the {what} of {count} of {total} examples are different in B",
        "meta-pytorch/torchtune#2613",
    ),
    Mistake(
        "class_weights",
        ("loss",),
        _class_weights,
        "examples, weights and all targets that are recorded are the same, but {what}",
    ),
    Mistake(
        "other_loss",
        ("loss",),
        _other_loss,
        "the same examples and weights give another loss, {why}{but}: {arguments}{targets}other weights of "
        "examples or classes, another loss function, another computation or another state in a layer, or other random numbers, "
        "as in dropout",
    ),
)
