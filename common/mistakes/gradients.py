"""Mistakes in the size of gradients: sums instead of means, and missing parts."""

from functools import partial

from samestep.common.mistakes import few_digits
from samestep.common.mistakes import gradient_arithmetic as arithmetic
from samestep.common.mistakes.gradient_arithmetic import GRADIENTS
from samestep.common.mistakes.mistake import Mistake
from samestep.common.steps.gradient_transforms import GRADIENT_PHASES

LAST_WINDOW = (
    Mistake(
        "last_window_divided_by_all",
        GRADIENTS,
        arithmetic.last_window,
        "the last window has {passes} of {usual} micro-batches, and one of the two still divides it by {usual}",
        "Lightning-AI/pytorch-lightning#19987",
    ),
)
SCALES = (
    Mistake(
        "loss_summed",
        ("loss",),
        arithmetic.loss_alone,
        "the loss of B is {ratio} times A's, and every gradient is the same",
        "keras-team/keras#16285",
        of_step="the reported loss is the sum over {devices} replicas, not their mean; the step itself is right",
    ),
    Mistake(
        "sum_for_mean",
        GRADIENTS,
        partial(arithmetic.times, arithmetic.processes, False),
        "every gradient of B is {ratio} times A's, {way} the number of processes ({number}), but the loss is not: one"
        " of the two adds up the gradients of its processes where the other averages them",
        "tensorflow/tensorflow#25806",
        of_step="every gradient is {devices} times the oracle's, which is the number of devices: a sum where a mean belongs",
    ),
    Mistake(
        "loss_divided_by_processes",
        GRADIENTS,
        partial(arithmetic.times, arithmetic.processes, True),
        "the loss and every gradient of B are {ratio} times A's, {way} the number of processes ({number}): one of the"
        " two multiplies or divides its loss by it",
        "facebookresearch/3detr#56",
    ),
    Mistake(
        "times_microbatches",
        GRADIENTS,
        partial(arithmetic.times, arithmetic.microbatches, True),
        "the loss and every gradient of B are {ratio} times A's, {way} the number of micro-batches ({number}): one of"
        " the two does not divide by it, or divides twice",
        "huggingface/transformers#35203",
        of_step="every gradient is multiplied by the number of micro-batches",
    ),
    Mistake(
        "divided_by_microbatches",
        GRADIENTS,
        partial(arithmetic.times, arithmetic.microbatches, False),
        "every gradient of B is {ratio} times A's, {way} the number of micro-batches ({number}), but the loss is not",
        "pytorch/pytorch#144352",
        of_step="every gradient is divided by the number of micro-batches once too often",
    ),
    Mistake(
        "mean_twice",
        GRADIENTS,
        partial(arithmetic.times, arithmetic.both, None),
        "every gradient of B is {ratio} times A's, {way} {number}, a product of two numbers of processes or "
        "micro-batches: one of the two divides by such a number twice, where the other divides once or not at all",
        "huggingface/transformers#37474",
        of_step="every gradient is 1/{devices} of the oracle's: averaged over the devices twice instead of once",
    ),
    Mistake(
        "root_of_processes",
        GRADIENTS,
        partial(arithmetic.times, arithmetic.roots, False),
        "every gradient of B is {ratio} times A's, {way} the square root of a number of processes or micro-batches",
        "pytorch/pytorch#88621",
    ),
    Mistake(
        "times_targets",
        GRADIENTS,
        partial(arithmetic.times, arithmetic.targets, None),
        "every gradient of B is {ratio} times A's, {way} the number of examples ({number}): one of the two sums over "
        "its examples where the other averages",
        "pytorch/torchtitan#2972",
        of_step="every gradient is the sum over all targets: only the reported loss is divided by their number",
    ),
)
ROUNDED = (
    Mistake(
        "gradients_rounded_to_bf16",
        GRADIENT_PHASES,
        partial(few_digits.rounded, few_digits.BF16),
        "every gradient is off by {off} of its norm, in no particular direction: one of the two rounded them to "
        "bfloat16, on the wire or in the sum{or_else}",
    ),
    Mistake(
        "gradients_rounded_to_fp16",
        GRADIENT_PHASES,
        partial(few_digits.rounded, few_digits.FP16),
        "every gradient is off by {off} of its norm, in no particular direction: one of the two rounded them to "
        "float16, on the wire or in the sum{or_else}",
    ),
    Mistake(
        "mean_of_means",
        GRADIENTS,
        arithmetic.mean_of_means,
        "the loss and the gradients differ by factors near 1 that no two layers share, and one of the two averages "
        "over {parts} parts: a mean of means over parts with uneven numbers of targets or sums of their weights, other targets, "
        "other random numbers, as in dropout, or a loss that does not add up; each hides whether anything else differs{also}",
        "huggingface/transformers#34191",
        of_step="each micro-batch and shard is divided by its own number of targets: a mean of means, although the shards "
        "have uneven numbers",
    ),
)
