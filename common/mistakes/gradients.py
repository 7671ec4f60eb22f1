"""Mistakes in the size of gradients: sums where there should be means, parts that are missing."""

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
        "the last window has {passes} of {usual} micro-batches, and one of the two divides it by {usual} all the same",
        "Lightning-AI/pytorch-lightning#19987",
    ),
)
SCALES = (
    Mistake(
        "loss_summed",
        ("loss",),
        arithmetic.loss_alone,
        "only the loss that is reported differs, B's is {ratio} times A's; the step itself is the same",
        "keras-team/keras#16285",
        of_step="the reported loss is the sum over {devices} replicas, not their mean; the step itself is right",
    ),
    Mistake(
        "sum_for_mean",
        GRADIENTS,
        partial(arithmetic.on_scaled_loss, False, partial(arithmetic.times, arithmetic.processes)),
        "every gradient of B is {ratio} times A's, {way} the number of processes ({number}), and the loss is not: one of the "
        "two adds the gradients of its processes up where the other takes their mean",
        "tensorflow/tensorflow#25806",
        of_step="every gradient is {devices}.000 x the oracle's = number of devices: a sum where a mean belongs",
    ),
    Mistake(
        "loss_divided_by_processes",
        GRADIENTS,
        partial(arithmetic.on_scaled_loss, True, partial(arithmetic.times, arithmetic.processes)),
        "loss and every gradient of B are {ratio} times A's, {way} the number of processes ({number}): the loss of one of the "
        "two is multiplied or divided by it",
        "facebookresearch/3detr#56",
    ),
    Mistake(
        "times_microbatches",
        GRADIENTS,
        partial(arithmetic.on_scaled_loss, True, partial(arithmetic.times, arithmetic.microbatches)),
        "loss and every gradient of B are {ratio} times A's, {way} the number of micro-batches ({number}): one of the two does "
        "not divide by it, or does twice",
        "huggingface/transformers#35203",
        of_step="every gradient is multiplied by the number of micro-batches",
    ),
    Mistake(
        "divided_by_microbatches",
        GRADIENTS,
        partial(arithmetic.on_scaled_loss, False, partial(arithmetic.times, arithmetic.microbatches)),
        "every gradient of B is {ratio} times A's, {way} the number of micro-batches ({number}), and the loss is not",
        "pytorch/pytorch#144352",
        of_step="every gradient is divided by the number of micro-batches once more",
    ),
    Mistake(
        "mean_twice",
        GRADIENTS,
        lambda e: (
            arithmetic.on_scaled_loss(True, partial(arithmetic.times, arithmetic.both), e)
            or arithmetic.on_scaled_loss(False, partial(arithmetic.times, arithmetic.both), e)
        ),
        "every gradient of B is {ratio} times A's, {way} {number}: the division by the number of processes or micro-batches is "
        "there twice in one of the two, and missing or there once in the other",
        "huggingface/transformers#37474",
        of_step="every gradient is 1/{devices} of the oracle's: averaged over the devices twice, where once belongs",
    ),
    Mistake(
        "root_of_processes",
        GRADIENTS,
        partial(arithmetic.on_scaled_loss, False, partial(arithmetic.times, arithmetic.roots)),
        "every gradient of B is {ratio} times A's, the root of a number of processes or micro-batches",
        "pytorch/pytorch#88621",
    ),
    Mistake(
        "times_targets",
        GRADIENTS,
        lambda e: (
            arithmetic.on_scaled_loss(True, partial(arithmetic.times, arithmetic.targets), e)
            or arithmetic.on_scaled_loss(False, partial(arithmetic.times, arithmetic.targets), e)
        ),
        "every gradient of B is {ratio} times A's, {way} the number of examples ({number}): one of the two takes the sum over "
        "examples where the other takes the mean",
        "pytorch/torchtitan#2972",
        of_step="every gradient is the sum over all targets: the division is in the reported loss only",
    ),
)
ROUNDED = (
    Mistake(
        "gradients_rounded_to_bf16",
        GRADIENT_PHASES,
        partial(few_digits.rounded, few_digits.BF16),
        "every gradient is off by {off} of its norm in no direction: one of the two rounded them to bfloat16, on the wire or "
        "in the sum{or_else}",
        "",
    ),
    Mistake(
        "gradients_rounded_to_fp16",
        GRADIENT_PHASES,
        partial(few_digits.rounded, few_digits.FP16),
        "every gradient is off by {off} of its norm in no direction: one of the two rounded them to float16, on the wire or "
        "in the sum{or_else}",
        "",
    ),
    Mistake(
        "mean_of_means",
        GRADIENTS,
        arithmetic.mean_of_means,
        "loss and gradients differ by factors near 1 that no two layers share, and one of the two is a mean over {parts} "
        "parts: a mean of means where the parts have uneven numbers of targets, other targets, or a loss that does not add up",
        "huggingface/transformers#34191",
        of_step="each micro-batch and shard is divided by its own targets: a mean of means, where shards have uneven counts",
    ),
)
