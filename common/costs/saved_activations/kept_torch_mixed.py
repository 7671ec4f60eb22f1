"""What each layer keeps in torch 2.13 where it computes in two bytes, in units of two bytes.

It is what `kept_torch.py` lists, with these differences:

    loss              in float32: everything counts twice
    layer norm        its input, mean and reciprocal deviation are in float32, and count twice
    RMS norm          in float32, and counts twice, also where parameters are gathered in two bytes
    batch norm        its mean and reciprocal deviation are in float32; its scale is widened where it was gathered in two bytes
    attention         the logs of its sums are in float32
    a cast            float32 factors of products are copied, once for each product: inputs that are data, and the output of a
                      norm once for each of queries, keys and values, and for up and gate, where it otherwise is one tensor
    kernels           are copied as well, for each micro-batch, and kept for the gradient of the other factor

Where parameters are gathered in two bytes (`gathered`), activations between layers have two bytes as well: only the sums of
attention and the loss are in float32, and only data need a copy.

Stage 3 of DeepSpeed has its own linear function, which keeps its inputs as they are (`as_it_comes`): no kernels, and
float32 inputs in float32.

References:
    aten/src/ATen/autocast_mode.h of torch 2.13 (which operations cast, and that only kernels are cast once a pass).
"""

import dataclasses
import functools
import math

from samestep.common.costs.saved_activations import kept_torch
from samestep.common.costs.saved_activations.copies import WIDE, add_kernels, returns_wide
from samestep.common.features.used import layers_of
from samestep.common.mesh import AXES
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, layer, parameters_of
from samestep.common.workload.saved import LOSS, Kept, SavedLists


def kept(model: ModelSpec, item_bytes: int, gathered: bool = False, as_it_comes: bool = False) -> dict[str, Kept]:
    """Lists what each segment and the loss keep; empty for models that have no list.

    Args:
        model: The spec.
        item_bytes: The bytes of a number, which are two.
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
        is_kept = as_it_comes and next(iter(parameters_of(model, first).values())).is_matrix
        found[first.name] = dataclasses.replace(data, batch_bytes=WIDE * data.batch_bytes) if is_kept else copied
    if not gathered:
        add_kernels(model, found, item_bytes, least_dims=3 if as_it_comes else 2)
    for name, elements in (_kept_wide(model) if as_it_comes else {}).items():
        found[name] = dataclasses.replace(found[name], whole=found[name].whole + elements)
    for path, channels in layers_of(model).items():
        each, wide = found[layer(path)], WIDE * item_bytes * channels
        fixed = each.fixed_bytes + (wide if gathered else 0)
        found[layer(path)] = dataclasses.replace(each, fixed_bytes=fixed, statistics_bytes=2 * wide)
    return _with_norms(model, found, gathered, as_it_comes) if model.facts.sizes.layers else found


def _kept_wide(model: ModelSpec) -> dict[str, int]:
    """Returns, by segment, what linear layers keep of a float32 input of an example in addition to the size of a copy."""
    segments = model.segments()
    taking = max((number for number, each in enumerate(segments[:-1], 1) if returns_wide(model, each)), default=0)
    return {segments[taking].name: math.prod(segments[taking - 1].outputs)} if taking else {}


def _with_norms(model: ModelSpec, found: dict[str, Kept], gathered: bool, as_it_comes: bool) -> dict[str, Kept]:
    """Adds what the norms and sums of a transformer's blocks keep in four bytes."""
    sizes = model.facts.sizes
    tokens, width = sizes.context, sizes.width
    for segment in model.segments()[1:]:
        each, is_block = found[segment.name], segment.name != "head"
        norms, copies = (2 if is_block else 1), 3 if sizes.is_gated and not as_it_comes else 2
        of_norm = 2 * width + 1 if sizes.is_gated else 0 if gathered else width + 2
        found[segment.name] = dataclasses.replace(
            each,
            whole=each.whole + (copies * tokens * width if is_block and not gathered else 0),
            parts=each.parts + (tokens * sizes.heads if is_block else 0),
            sequence=each.sequence + norms * tokens * of_norm,
        )
    return found


_CAST = SavedLists(
    dict.fromkeys(kept_torch.TRAINED, kept),
    in_order=True,
    copies=True,
    units=lambda model, segment: WIDE if returns_wide(model, segment) else 1,
)
_GATHERED = SavedLists(dict.fromkeys(kept_torch.TRAINED, functools.partial(kept, gathered=True)), in_order=True)
_AS_IT_COMES = SavedLists(dict.fromkeys(kept_torch.TRAINED, functools.partial(kept, as_it_comes=True)), in_order=True)


def saved_mixed(run: Run, as_it_comes: bool) -> SavedLists:
    """Returns the list of what a run in mixed precision keeps.

    Args:
        run: What is trained.
        as_it_comes: Whether linear layers keep their inputs uncast.
    """
    if as_it_comes:
        return _AS_IT_COMES
    axes = {*run.strategy.axes[:1], *run.mesh.in_order}
    return _GATHERED if any("parameters" in AXES[axis].cuts for axis in axes) else _CAST
