"""Mistakes from public issue threads that raised no error, as mutants; `docs/silent-bugs.md` links to the threads.

Each mistake names the cell in which it makes a difference. Like all mutants, each acts on a single step.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.models.transformer import Embedding, TiedLogits
from samestep.common.reference.mutants import GPT, Apply, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.step import Part, parts_of, times
from samestep.common.reference.wrong_steps import change_gradients, layers_of, weigh_parts
from samestep.common.workload.models.spec import ignores_targets
from samestep.common.workload.models.transformer import TOKENS

_TIED, _IGNORED, _STEPS = f"{GPT}+tied=true", f"{GPT}+ignored=0.5", f"{GPT}+accumulation_steps=4"


def weigh_microbatches(weight: Callable[[int, int], float], program: TrainingProgram, context: Context) -> bool:
    """Makes a program weight the micro-batches of each shard wrongly; the loss is right.

    Args:
        weight: (micro-batch, number of micro-batches) -> its weight, which is 1 in a correct step.
        program: The program to be made wrong.
        context: Ignored, because a pipeline has fewer shards than devices.
    """
    steps = program.run.microbatches
    weights = [weight(micro, steps) for micro in range(steps)] * program.run.mesh.replicas
    weigh_parts(program, lambda batch: weights)
    return steps > 1


def mean_of_means(program: TrainingProgram, context: Context) -> bool:
    """Makes a program divide each micro-batch of each shard by its own number of targets.

    Args:
        program: The program to be made wrong.
        context: Ignored, because a pipeline has fewer shards than devices.
    """
    count = program.run.mesh.replicas * program.run.microbatches

    def own(batch: Batch) -> list[float]:
        return [batch.num_targets / (batch.part(number, count).num_targets or 1) / count for number in range(count)]

    weigh_parts(program, own, on_loss=True)
    return ignores_targets(program.run.workload.model) and count > 1


def times_targets(program: TrainingProgram, context: Context) -> bool:
    """Makes a program use the sum over all targets instead of their mean; the loss is right.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    change_gradients(program, lambda batch, loss, values: (loss, times(values, batch.num_targets)))
    return True


def count_ignored(program: TrainingProgram, context: Context) -> bool:
    """Makes a program divide by the number of all targets, including those that do not count.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """

    def change(batch: Batch, loss: float, values: Arrays) -> Part:
        share = batch.num_targets / batch.targets[batch.indices].size
        return loss * share, times(values, share)

    change_gradients(program, change)
    return ignores_targets(program.run.workload.model)


def report_loss(loss_of: Callable[[Sequence[float]], float], program: TrainingProgram, context: Context) -> bool:
    """Makes a program report another loss; the step is right.

    Args:
        loss_of: Computes the reported loss from the losses of the shards.
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    count = context.devices
    change_gradients(
        program, lambda batch, loss, values: (loss_of([each for each, _ in parts_of(program, batch, count)]), values)
    )
    return count > 1


def partial_on_replicated(program: TrainingProgram, context: Context) -> bool:
    """Leaves the gradients of norms and biases as the part of the first shard.

    Args:
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    params, count = program.run.workload.model.params(), context.devices

    def change(batch: Batch, loss: float, values: Arrays) -> Part:
        _, first = parts_of(program, batch, count)[0]
        return loss, {n: first[n] if params[n].role in ("scale", "bias") else g for n, g in values.items()}

    change_gradients(program, change)
    return count > 1


def identity_log_softmax_gradient(program: TrainingProgram, context: Context) -> bool:
    """Uses the gradient of the log-probabilities as that of the logits: the softmax's part is missing.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.loss

    def loss(logits: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = right(logits, targets)
        chosen = np.zeros_like(gradient)
        np.put_along_axis(chosen, np.maximum(targets, 0)[..., None], -1.0, axis=-1)
        return value, chosen * (targets >= 0)[..., None]

    program.loss = loss
    return program.run.workload.model.loss == "cross_entropy"


def tied_halves(lookups: float, head: float, program: TrainingProgram, context: Context) -> bool:
    """Makes a program weight the two halves of a tied table's gradient wrongly.

    Args:
        lookups: The weight of the embedding's half.
        head: The weight of the head's half.
        program: The program to be made wrong.
        context: Ignored.
    """
    heads = layers_of(program, TiedLogits)
    for weight, layers in ((head, heads), (lookups, layers_of(program, Embedding))):
        for layer in layers:
            vars(layer)["backward"] = partial(_weighted_half, weight, layer.backward)
    return bool(heads)


def _weighted_half(weight: float, right: Callable[..., np.ndarray], *arguments: object) -> np.ndarray:
    gradients = arguments[-1]
    assert isinstance(gradients, dict)
    before = gradients.pop(TOKENS, 0.0)
    dx = right(*arguments)
    gradients[TOKENS] = before + weight * gradients[TOKENS]
    return dx


def _by_micro(weight: Callable[[int, int], float]) -> Apply:
    return partial(weigh_microbatches, weight)


_SENTENCES = {
    "ignored_counted": "targets that do not count are in the divisor: padding is counted",
    "divided_each_microbatch": "the sum of micro-batches is divided after each of them: a moving average, not a sum",
    "doubled_each_microbatch": "what was accumulated is doubled by each further micro-batch",
    "last_microbatch_only": "only the last micro-batch counts: the others were overwritten",
    "last_microbatch_lost": "the last micro-batch is missing: the exchange came before it",
    "loss_of_first_replica": "the reported loss is that of the first shard alone; the step itself is right",
    "loss_divided_twice": "the reported loss is divided by {devices} replicas once more; the step itself is right",
    "identity_log_softmax": "the gradient of log-softmax is that of the identity",
    "head_half_only": "the tied table has only half of its gradient, that of the head",
    "tied_halves_averaged": "the two halves of the tied table's gradient are averaged, not added",
    "tied_head_twice": "the head's half of the tied table's gradient counts twice",
}
MISTAKES = (
    *in_cell(f"{_IGNORED}+accumulation_steps=4", _SENTENCES, mean_of_means=mean_of_means),
    *in_cell(_IGNORED, _SENTENCES, ignored_counted=count_ignored),
    *in_cell(GPT, _SENTENCES, times_targets=times_targets),
    *in_cell(
        _STEPS,
        _SENTENCES,
        times_microbatches=_by_micro(lambda micro, count: count),
        divided_by_microbatches=_by_micro(lambda micro, count: 1 / count),
        divided_each_microbatch=_by_micro(lambda micro, count: count ** -float(count - micro)),
        doubled_each_microbatch=_by_micro(lambda micro, count: 2.0 ** (count - 1 - micro)),
        last_microbatch_only=_by_micro(lambda micro, count: float(micro == count - 1)),
        last_microbatch_lost=_by_micro(lambda micro, count: float(micro < count - 1)),
    ),
    *in_cell(
        GPT,
        _SENTENCES,
        loss_of_first_replica=partial(report_loss, lambda losses: len(losses) * losses[0]),
        loss_summed=partial(report_loss, lambda losses: len(losses) * sum(losses)),
        loss_divided_twice=partial(report_loss, lambda losses: sum(losses) / len(losses)),
        partial_on_replicated=partial_on_replicated,
        identity_log_softmax=identity_log_softmax_gradient,
    ),
    *in_cell(
        _TIED,
        _SENTENCES,
        untied_head=partial(tied_halves, 1.0, 0.0),
        head_half_only=partial(tied_halves, 0.0, 1.0),
        tied_halves_averaged=partial(tied_halves, 0.5, 0.5),
        tied_head_twice=partial(tied_halves, 1.0, 2.0),
    ),
)
