"""Models split inside their layers, along the axis `tensor` of a mesh.

tp: every rank computes its part of each pair of layers on the full batch. With A bytes of activations in a pair's outputs,
and as many in its inputs, a step all-reduces A forward and A backward for each pair: for a transformer's block twice each.
A softmax over logits in parts all-reduces three numbers a target.

References:
    Shoeybi et al., arXiv 1909.08053, section 3 (two all-reduces a pair of layers, each way); Korthikanti et al., arXiv
    2205.05198, section 4.2.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.saved_activations.both_passes import both_passes
from samestep.common.costs.sizes import holder, symmetric, with_agreement
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.strategy import Run
from samestep.common.workload.models.reached import trained
from samestep.common.workload.models.spec import ModelSpec, Param, Role, Segment, layer, num_positions, parameters_of
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
    activations = activation_bytes(run, splits_sequence=run.options.sequence_parallel)
    return (dataclasses.replace(held, activations_bytes=activations),)


def _tp_collectives(run: Run) -> Iterator[Send]:
    """Predicts every collective of a rank."""
    model, parts, passes = run.workload.model, run.mesh.tensor, run.passes
    rows = run.batch_size // passes
    once = _in_shards(run, rows) if run.options.sequence_parallel else sums(run, rows, model.segments())
    for _ in range(passes):
        yield from itertools.chain(*once)
    if run.techniques.need_norm:  # the norm of each parameter that is split
        for _ in even_split_table(model, parts).keys() & trained(model.params()).keys():
            yield Send("update", "all_reduce", "tensor", parts, run.item_bytes)


def sums(run: Run, rows: int, segments: Sequence[Segment]) -> tuple[list[Send], list[Send]]:
    """Predicts what some examples have summed along the axis `tensor`, forward and backward, in order.

    Forward: the rows looked up in each split table, the outputs of each layer split by row, and the three numbers of a
    softmax over split logits. Backward: the gradients of the inputs of each layer split by column.

    Args:
        run: What is trained.
        rows: The number of examples.
        segments: The part of the model that is meant.
    """
    parts = run.mesh.tensor

    def summed(phase: str, kinds: Collection[str], segment: Segment) -> list[Send]:
        layers = _split_layers(run.workload.model, parts, [segment])[:: 1 if phase == "forward" else -1]
        is_product = _takes_a_product(run.workload.model, segments, segment)
        sizes = (size * rows * _item_bytes(run, kind, is_product) for kind, size in layers if kind in kinds)
        return [Send(phase, "all_reduce", "tensor", parts, size) for size in sizes]

    ahead = functools.partial(summed, "forward", ("table", "row", "logits"))
    return both_passes(run, segments, ahead, functools.partial(summed, "backward", ("column",)))


def _in_shards(run: Run, rows: int) -> tuple[list[Send], list[Send]]:
    """Predicts what `sums` does where activations between two pairs are in shards: gathered before, scattered after.

    Each rank computes the gradients of norms on its shard, so they are summed; that of the embedding's output, which each
    rank cut, is gathered.
    """
    parts = run.mesh.tensor
    ahead = {"table": "all_reduce", "column": "all_gather", "row": "reduce_scatter", "logits": "all_reduce"}
    back = {"table": "all_gather", "column": "reduce_scatter", "row": "all_gather", "norm": "all_reduce"}

    def collective(phase: str, operation: str, kind: str, size: int) -> Send:
        whole = size * _item_bytes(run, kind) * (1 if kind == "norm" else rows)
        return Send(phase, operation, "tensor", parts, whole // (parts if operation == "all_gather" else 1))

    def within(phase: str, operations: Mapping[str, str], segment: Segment) -> list[Send]:
        layers = _split_layers(run.workload.model, parts, [segment])[:: 1 if phase == "forward" else -1]
        return [collective(phase, operations[kind], kind, size) for kind, size in layers if kind in operations]

    passes = (functools.partial(within, "forward", ahead), functools.partial(within, "backward", back))
    return both_passes(run, run.workload.model.segments(), *passes)


def _item_bytes(run: Run, kind: str, is_product: bool = False) -> int:
    """Returns the bytes of a number that is summed: what a product returned has those of products, and so has its gradient.

    What tables and norms return has so too where parameters were gathered in two bytes.

    Args:
        run: What is trained.
        kind: As in `_split_layers`.
        is_product: Whether what the layer takes is what a product returned.
    """
    is_narrow = kind == "row" or (kind in ("column", "table") and run.mesh.shard > 1)
    return run.product_bytes if is_narrow or (kind == "column" and is_product) else run.item_bytes


def _takes_a_product(model: ModelSpec, segments: Sequence[Segment], segment: Segment) -> bool:
    """Returns whether the first layer of a segment takes what a product of the same stage returned, and no norm in between."""
    before = [*parameters_of(model, *segments[: segments.index(segment)]).values()]
    first = next(iter(parameters_of(model, segment).values()), None)
    return bool(before) and before[-1].role != "table" and first is not None and first.role == "kernel"


def _split_layers(model: ModelSpec, parts: int, segments: Sequence[Segment]) -> list[tuple[str, int]]:
    """Lists what a step meets in some segments, in order: what it is, and the elements of its sum for one example.

    A "table" and a layer split by "row" have their outputs summed, one split by "column" the gradient of its inputs; split
    "logits" take a softmax of three sums; a "norm" is whole, and the elements of its parameter do not depend on examples.
    """
    params, split = model.params(), even_split_table(model, parts)
    meant, last = parameters_of(model, *segments), parameters_of(model, model.segments()[-1])
    norms = {layer(name) for name, param in meant.items() if param.role == "scale"}
    whole, found = num_positions(model), list[tuple[str, int]]()
    ties = [name for name in split if params[name].tied and model.segments()[-1] in segments]
    kernels = {name for name, param in meant.items() if name in split and param.role != "bias"}
    logits = next((name for name in reversed(split) if params[name].role != "bias"), "")
    for name, param in meant.items():
        use = model.facts.use_of(layer(name))
        if layer(name) in norms:
            found.append(("norm", param.size))
        elif name in kernels and param.lookups and (not param.tied or model.segments()[0] in segments):
            found.append(("table", param.lookups * param.shape[1]))
        elif name in kernels and split[name] == 0 and not param.lookups:
            found += [("row", positions * param.shape[1]) for positions in use.positions]
        elif name in kernels and not param.shares_input and not param.lookups and use.takes_gradient:
            found += [("column", positions * param.shape[0]) for positions in use.positions]
    found += [("column", whole * params[name].shape[1]) for name in ties]
    has_split_logits = bool(ties) or (
        not model.facts.takes_whole_logits and split.get(logits) == 1 and logits in meant and logits in last
    )
    return found + [("logits", whole)] * (3 if has_split_logits else 0)


def tensor_elements(model: ModelSpec, parts: int, params: Mapping[str, Param] | None = None) -> int:
    """Returns the parameter elements of a device along a tensor axis: its shard of each that is split, and all others.

    Args:
        model: The spec.
        parts: The size of the axis.
        params: Which of its parameters; all, unless given.
    """
    every = model.params() if params is None else params
    return sum(math.prod(shape) for shape, _ in split_shapes(model, parts, every).values())


def split_shapes(model: ModelSpec, parts: int, params: Mapping[str, Param]) -> dict[str, tuple[list[int], Role]]:
    """Parameter name -> the shape of what a device along a tensor axis has of it, and its role.

    Args:
        model: The spec.
        parts: The size of the axis.
        params: Which of its parameters.
    """
    split = even_split_table(model, parts)
    return {
        name: ([size // (parts if split.get(name) == dim else 1) for dim, size in enumerate(param.shape)], param.role)
        for name, param in params.items()
    }
