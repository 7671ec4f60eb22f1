"""Models split inside their layers, along the axis `tensor` of a mesh.

tp: every rank computes its part of each pair of layers on the full batch; `common/axes/tensor.py` has what they exchange.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.sizes import holder, symmetric, with_agreement
from samestep.common.costs.within import all_within
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.strategy import Run
from samestep.common.workload.models.reached import trained
from samestep.common.workload.models.spec import ModelSpec, Param
from samestep.common.workload.split import even_split_table


def tp(run: Run, backend: str) -> Ledger:
    """Every rank has its shard of each split layer, and all of the rest.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, and the collectives of both passes.
    """
    sends = with_agreement(run, _tp_collectives(run)) if run.mesh.tensor > 1 else ()
    return symmetric(run, tp_footprints(run), sends, backend)


def tp_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of ranks that hold a part of each split layer, and all of the rest."""
    parts = run.mesh.tensor
    every = run.workload.model.params()
    of_all, learning = (tensor_elements(run.workload.model, parts, params) for params in (every, trained(every)))
    held = holder(run, of_all, count=parts, trained=learning)
    return (dataclasses.replace(held, activations_bytes=activation_bytes(run)),)


def _tp_collectives(run: Run) -> Iterator[Send]:
    """Predicts every collective of a rank."""
    model, parts, passes = run.workload.model, run.mesh.tensor, run.passes
    for _ in range(passes):
        yield from all_within(run, run.batch_size // passes, model.segments())
    if run.techniques.need_norm:  # the norm of each parameter that is split
        for _ in even_split_table(model, parts).keys() & trained(model.params()).keys():
            yield Send("update", "all_reduce", "tensor", parts, run.item_bytes)


def tensor_elements(model: ModelSpec, parts: int, params: Mapping[str, Param] | None = None) -> int:
    """Returns the parameter elements of a device along a tensor axis: its shard of each that is split, and all others.

    Args:
        model: The spec.
        parts: The size of the axis.
        params: Which of its parameters; all, unless given.
    """
    every = model.params() if params is None else params
    return sum(param.size for param in split_shapes(model, parts, every).values())


def split_shapes(model: ModelSpec, parts: int, params: Mapping[str, Param]) -> dict[str, Param]:
    """Parameter name -> what a device along a tensor axis has of it.

    Args:
        model: The spec.
        parts: The size of the axis.
        params: Which of its parameters.
    """
    split, held = even_split_table(model, parts), dict(params)
    for name in held.keys() & split.keys() if parts > 1 else ():
        held[name] = _cut(held[name], split[name], parts)
    return held


@functools.cache
def _cut(param: Param, dim: int, parts: int) -> Param:
    """Returns the shard of a parameter; the layers of a model have the same ones."""
    shape = list(param.shape)
    shape[dim] //= parts
    return dataclasses.replace(param, shape=tuple(shape))
