"""Recomputation: inner segments save only their inputs, and compute the rest again in the backward pass.

It is applied before the strategy distributes the model. What a rank needs to recompute a segment is available, because a
strategy that gathers parameters for the backward pass has gathered them by then.

References:
    torch.utils.checkpoint.checkpoint(use_reentrant=False) (torch 2.13); Chen et al., arXiv 1604.06174.
"""

import contextlib
import functools
from typing import cast

from torch import nn
from torch.utils.checkpoint import checkpoint

from samestep.common.strategy import Run
from samestep.torch_impl.models.segmented import Segmented, SegmentFunction
from samestep.torch_impl.observing.activations import recomputing


def recompute(run: Run, model: nn.Module) -> None:
    """Makes a model recompute its inner segments, or a user model its blocks, if the run asks for it, in place.

    Args:
        run: The run.
        model: The model, possibly on the meta device, or the part that a stage has left of it.
    """
    if not run.techniques.recompute:
        return
    spec = run.workload.model
    if not spec.facts.is_built_here:
        modules = dict(model.named_modules())
        for block in (
            modules[path] for path in (each.name.replace("/", ".") for each in spec.facts.blocks) if path in modules
        ):
            block.forward = _computed_twice(run, block.forward)
        return
    inner, right = {segment.name for segment in spec.segments()[1:-1]}, cast(Segmented, model).segments

    def segments() -> dict[str, SegmentFunction]:
        return {name: _computed_twice(run, each) if name in inner else each for name, each in right().items()}

    cast(Segmented, model).segments = segments


def _computed_twice(run: Run, function: SegmentFunction) -> SegmentFunction:
    twice = functools.partial(checkpoint, function, use_reentrant=False)
    # The compiler can trace checkpoint, but not our contexts (torch 2.13).
    return twice if run.techniques.compile else functools.partial(twice, context_fn=_contexts)


def _contexts() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
    """Returns the contexts of the first computation and of the recomputation."""
    return contextlib.nullcontext(), recomputing()
