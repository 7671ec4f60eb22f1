"""What each layer keeps in torch 2.13 where it computes in two bytes, in units of two bytes.

It is what `kept_torch.py` lists, with these differences:

    loss              in float32: everything counts twice
    layer norm        its input, mean and reciprocal deviation are in float32, and count twice
    batch norm        its mean and reciprocal deviation are in float32; its scale is widened where it was gathered in two bytes
    attention         the logs of its sums are in float32
    a cast            what products take of float32 is copied, once for each product: inputs that are data, and the output of a
                      norm once for each of queries, keys and values, where it otherwise is one tensor
    kernels           are copied as well, and kept for the gradient of what they are multiplied with, for each micro-batch

Where parameters are gathered in two bytes (`gathered`), what goes on from layer to layer has two bytes as well: nothing but the
sums of attention and the loss is in float32, and only data need a copy.

Stage 3 of DeepSpeed has a linear function of its own, which keeps what it takes as it comes (`as_it_comes`): no kernel, and in
float32 what is in float32.

References:
    aten/src/ATen/autocast_mode.h of torch 2.13 (which operations cast, and that only kernels are cast once a pass).
"""

import dataclasses
import functools
import math

from samestep.common.costs.saved_activations import kept_tf, kept_torch
from samestep.common.costs.saved_activations.kept import LOSS, Kept
from samestep.common.workload.models.spec import ModelSpec, Segment, batch_norms, layer, parameters_of
from samestep.common.workload.models.transformer import TransformerSpec

WIDE = 2
"""Units of a number in float32."""


def kept(model: ModelSpec, item_bytes: int, gathered: bool = False, as_it_comes: bool = False) -> dict[str, Kept]:
    """Lists what each segment keeps, and the loss; nothing of models that nobody wrote down.

    Args:
        model: The spec.
        item_bytes: Of two bytes.
        gathered: Whether parameters are gathered in two bytes.
        as_it_comes: Whether linear layers keep no copies.
    """
    found = dict(kept_torch.KEPT[model.name](model, item_bytes))
    of_loss = kept_torch.KEPT[model.name](model, item_bytes * WIDE)[LOSS]
    found[LOSS] = dataclasses.replace(of_loss, whole=WIDE * of_loss.whole, parts=WIDE * of_loss.parts)
    first, *_ = model.segments()
    if not model.inputs().ids:  # data are cast, and their copy is kept
        data = found[first.name]
        copied = dataclasses.replace(data, whole=data.whole + data.batch_bytes // item_bytes, batch_bytes=0)
        is_kept = as_it_comes and model.name == "mlp"
        found[first.name] = dataclasses.replace(data, batch_bytes=WIDE * data.batch_bytes) if is_kept else copied
    if not gathered:
        _add_kernels(model, found, item_bytes, least_dims=3 if as_it_comes else 2)
    for name, elements in (_kept_wide(model) if as_it_comes else {}).items():
        found[name] = dataclasses.replace(found[name], whole=found[name].whole + elements)
    for path, channels in batch_norms(model).items():
        each, wide = found[layer(path)], WIDE * item_bytes * channels
        fixed = each.fixed_bytes + (wide if gathered else 0)
        found[layer(path)] = dataclasses.replace(each, fixed_bytes=fixed, statistics_bytes=2 * wide)
    return _MORE[model.name](model, found, gathered) if model.name in _MORE else found


def kept_by_tf(model: ModelSpec, item_bytes: int) -> dict[str, Kept]:
    """Lists the same of TensorFlow, where nothing but the factors of products has two bytes.

    Args:
        model: The spec.
        item_bytes: Of two bytes.
    """
    found = _OF_TF[model.name](model, item_bytes, wide=WIDE)
    _add_kernels(model, found, item_bytes)
    return found


def _kept_wide(model: ModelSpec) -> dict[str, int]:
    """What linear layers keep in float32 of an example, beyond as many copies; in a block it is two in place of three and one."""
    segments = model.segments()
    taking = {"transformer": len(segments) - 1, "ranker": 1}.get(model.name, 0)
    return {segments[taking].name: math.prod(segments[taking - 1].outputs)} if taking else {}


def _add_kernels(model: ModelSpec, found: dict[str, Kept], item_bytes: int, least_dims: int = 2) -> None:
    """Adds the copies of kernels; one that data are multiplied with is kept by a convolution only, which has no need of it."""
    for segment in model.segments()[0 if model.name == "cnn" else 1 :]:
        kernels = [param for param in parameters_of(model, segment).values() if param.role == "kernel" or param.tied]
        kernels = [param for param in kernels if len(param.shape) >= least_dims]
        each, sizes = found.get(segment.name, Kept()), [item_bytes * param.size for param in kernels]
        split = sum(size for size, param in zip(sizes, kernels, strict=True) if param.split is not None)
        found[segment.name] = dataclasses.replace(
            each, fixed_bytes=each.fixed_bytes + sum(sizes) - split, copied_bytes=split
        )


def keeps_wide(model: ModelSpec) -> bool:
    """Whether float32 goes on from segment to segment, which a norm keeps as it is: products would keep a copy of two bytes."""
    return model.name == "transformer"


def returns_wide(model: ModelSpec, segment: Segment) -> bool:
    """Whether a segment returns float32 though its products do not: rows of tables, and what is added to them.

    Args:
        model: The spec.
        segment: One of its segments.
    """
    return keeps_wide(model) or any(param.role == "table" for param in parameters_of(model, segment).values())


def _with_norms(model: TransformerSpec, found: dict[str, Kept], gathered: bool) -> dict[str, Kept]:
    tokens, width = model.context, model.width
    for segment in model.segments()[1:]:
        each, is_block = found[segment.name], segment.name != "head"
        norms = 2 if is_block else 1
        wide = 0 if gathered else norms * tokens * (width + 2)
        found[segment.name] = dataclasses.replace(
            each,
            whole=each.whole + (2 * tokens * width if is_block and not gathered else 0),
            parts=each.parts + (tokens * model.heads if is_block else 0),
            sequence=each.sequence + wide,
        )
    return found


_MORE = {"transformer": _with_norms}
"""Of which model more than its loss has four bytes."""
_OF_TF = {"mlp": kept_tf.mlp, "cnn": kept_tf.cnn, "ranker": kept_tf.ranker, "transformer": kept_tf.transformer}
CAST = dict.fromkeys(_OF_TF, kept)
GATHERED = {name: functools.partial(kept, gathered=True) for name in CAST}
AS_IT_COMES = {name: functools.partial(kept, as_it_comes=True) for name in CAST}
TF = dict.fromkeys(_OF_TF, kept_by_tf)
