"""The axis `tensor`: layers are cut inside, in pairs by column and by row; every device takes the whole batch.

With A bytes of activations in a pair's outputs, and as many in its inputs, a step all-reduces A bytes forward and A bytes
backward for each pair; a transformer's block has two pairs. A softmax over logits in parts all-reduces three numbers for each
target.

References:
    Shoeybi et al., arXiv 1909.08053, section 3 (two all-reduces a pair of layers, each way); Korthikanti et al., arXiv
    2205.05198, section 4.2.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from samestep.common.axes.axis import AxisHooks, SegmentExchange, Sizes, StagePass, Term
from samestep.common.errors import ConfigError
from samestep.common.features.used import running_buffers
from samestep.common.ledger import Send
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Param, Segment, layer, num_positions, parameters_of
from samestep.common.workload.split import even_split_table

SUMS = {"forward": dict.fromkeys(("table", "row", "logits"), "all_reduce"), "backward": {"column": "all_reduce"}}
"""Phase -> kind of layer -> operation that sums."""
IN_SHARDS = {
    "forward": {"table": "all_reduce", "column": "all_gather", "row": "reduce_scatter", "logits": "all_reduce"},
    "backward": {"table": "all_gather", "column": "reduce_scatter", "row": "all_gather", "norm": "all_reduce"},
}
"""The same if activations between two pairs of layers are in shards: gathered before a pair, scattered after it.

Each rank computes the gradients of norms on its shard, so they are summed. The gradient of the embedding's output, which each
rank cut, is gathered.
"""


class SplitLayer(NamedTuple):
    """A layer that is split, or a layer between two split ones, and what a step exchanges for it.

    Attributes:
        number: The number of the layer in its segment.
        kind: The outputs of a "table" and of a layer split by "row" are summed, and so is the gradient of the inputs of a layer
            split by "column". Split "logits" take a softmax of three sums. A "norm" is whole, and its elements do not depend on
            the number of examples.
        elements: The number of elements of its sum, for one example.
        is_kept: Whether the backward pass needs the sum, as it does with the outputs of experts, which a router weighs.
    """

    number: int
    kind: str
    elements: int
    is_kept: bool = False


def refuse(run: Run) -> None:
    """Refuses a user's model that does not say which layers are cut, running statistics, and unequal parts of a layer or a head.

    Raises:
        ConfigError: The model has running statistics, does not say which layers are cut, or its parts are unequal.
    """
    model = run.workload.model
    if (running := running_buffers(model)) is not None:
        raise ConfigError(
            f"{run.name} along tensor does not take {running.asked_by}: no plan cuts {running.in_words} along with the "
            "channels of a layer; leave it out, or choose another strategy."
        )
    if model.facts.source and all(param.split is None for param in model.params().values()):
        raise ConfigError(
            f"{run.name} cuts layers in pairs, and {run.workload.name} does not say which; add `tensor_plan={{'blocks.*.up': "
            f"'column', 'blocks.*.down': 'row'}}` to its samestep.Model, with the paths of its linear layers."
        )
    even_split_table(run.workload.model, run.mesh.tensor)


def hold(model: ModelSpec, mesh: Mesh, params: Mapping[str, Param]) -> dict[str, Param]:
    """Returns the parameters that a device holds: its shard of those that are split, and all others.

    Args:
        model: The model.
        mesh: All devices.
        params: The parameters, by name.
    """
    split, held = even_split_table(model, mesh.tensor), dict(params)
    for name in held.keys() & split.keys():
        held[name] = _cut(held[name], split[name], mesh.tensor)
    return held


@functools.cache
def _cut(param: Param, dim: int, parts: int) -> Param:
    """Returns the shard of a parameter. It is cached, since the layers of a model are alike."""
    shape = list(param.shape)
    shape[dim] //= parts
    return dataclasses.replace(param, shape=tuple(shape))


def outputs(model: ModelSpec, mesh: Mesh, segment: Segment) -> int:
    """Returns the number of parts of a segment's outputs: that of the devices if its last layer is split by column, else 1.

    Args:
        model: The model as one rank sees it.
        mesh: All devices.
        segment: The segment.
    """
    params = parameters_of(model, segment).items()
    kernels = [name for name, param in params if param.role == "kernel" and not param.stacked]
    is_split = bool(kernels) and even_split_table(model, mesh.tensor).get(kernels[-1]) == 1
    return mesh.tensor if is_split else 1


def splits_sequence(run: Run) -> bool:
    """Returns whether a run cuts the sequence as well, between the pairs of layers."""
    return run.asked.sequence_parallel


def exchange(run: Run, stage: StagePass, segment: Segment) -> Iterator[SegmentExchange]:
    """Yields the sums along the axis that a pass of some examples needs.

    Forward: the rows looked up in each split table, the outputs of each layer split by row, and the three numbers of a
    softmax over split logits. Backward: the gradients of the inputs of each layer split by column.

    Args:
        run: What is trained, as one rank sees it.
        stage: The pass.
        segment: The segment.
    """
    in_shards, parts, phase = splits_sequence(run), run.mesh.tensor, stage.phase
    operations = (IN_SHARDS if in_shards else SUMS)[phase]
    is_product = not in_shards and _takes_a_product(run.workload.model, stage.segments, segment)
    layers = [each for each in split_layers(run.workload.model, parts, segment) if each.kind in operations]
    for place, each in enumerate(layers, 1):
        whole = each.elements * _item_bytes(run, each.kind, is_product) * (1 if each.kind == "norm" else stage.rows)
        operation = operations[each.kind]
        send = Send(phase, operation, "tensor", parts, whole // (parts if operation == "all_gather" else 1))
        # The sum of the last layer's outputs comes after everything that the backward pass keeps.
        yield SegmentExchange(each.number, send, is_needed=each.is_kept or place < len(layers))


def _item_bytes(run: Run, kind: str, is_product: bool) -> int:
    """Returns the bytes of a number that is summed. The output of a product and its gradient have the bytes of products.

    So have the outputs of tables and norms if parameters were gathered in two bytes.

    Args:
        run: What is trained.
        kind: As in `SplitLayer`.
        is_product: Whether the layer takes the output of a product.
    """
    is_narrow = kind == "row" or (kind in ("column", "table") and run.mesh.parts("parameters") > 1)
    return run.product_bytes if is_narrow or (kind == "column" and is_product) else run.item_bytes


def _takes_a_product(model: ModelSpec, segments: Sequence[Segment], segment: Segment) -> bool:
    """Returns whether the first layer of a segment takes the output of a product of the same stage, with no norm in between."""
    before = [*parameters_of(model, *segments[: segments.index(segment)]).values()]
    first = next(iter(parameters_of(model, segment).values()), None)
    return bool(before) and before[-1].role != "table" and first is not None and first.role == "kernel"


def split_layers(model: ModelSpec, parts: int, segment: Segment) -> list[SplitLayer]:
    """Lists the layers of a segment that are split or lie between split ones, in order.

    Args:
        model: The spec.
        parts: The size of the axis.
        segment: One of its segments.
    """
    params, split = model.params(), even_split_table(model, parts)
    meant, last = parameters_of(model, segment), parameters_of(model, model.segments()[-1])
    layers = list(dict.fromkeys(map(layer, meant)))
    norms = {layer(name) for name, param in meant.items() if param.role == "scale"}
    whole, found = num_positions(model), list[SplitLayer]()
    ties = [name for name in split if params[name].tied and model.segments()[-1] == segment]
    kernels = {name for name, param in meant.items() if name in split and param.role != "bias"}
    logits = next((name for name in reversed([*split]) if params[name].role != "bias"), "")
    for name, param in meant.items():
        use, number = model.facts.use_of(layer(name)), layers.index(layer(name))
        if layer(name) in norms:
            found.append(SplitLayer(number, "norm", param.size))
        elif name in kernels and param.stacked:
            found += _split_stack(model, number, param)
        elif name in kernels and param.lookups and (not param.tied or model.segments()[0] == segment):
            found.append(SplitLayer(number, "table", param.lookups * param.shape[1]))
        elif name in kernels and split[name] == 0 and not param.lookups:
            found += [SplitLayer(number, "row", positions * param.shape[1]) for positions in use.positions]
        elif name in kernels and not param.shares_input and not param.lookups and use.takes_gradient:
            found += [SplitLayer(number, "column", positions * param.shape[0]) for positions in use.positions]
    found += [SplitLayer(len(layers), "column", whole * params[name].shape[1]) for name in ties]
    has_split_logits = bool(ties) or (
        not model.facts.takes_whole_logits and split.get(logits) == 1 and logits in meant and logits in last
    )
    return found + [SplitLayer(len(layers), "logits", whole)] * (3 if has_split_logits else 0)


def _split_stack(model: ModelSpec, number: int, param: Param) -> list[SplitLayer]:
    """Returns the split layers in a layer of experts, which takes each token once for each of the token's experts."""
    tokens = num_positions(model) * model.facts.sizes.top_k
    if param.split == 1:
        return [SplitLayer(number, "row", tokens * param.shape[2], is_kept=True)]
    return [] if param.shares_input else [SplitLayer(number, "column", tokens * param.shape[1])]


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of two all-reduces for each block, in each pass.

    Args:
        run: What is trained.
        sizes: The sizes in which the term is expressed.
    """
    return 8 * (run.mesh.tensor - 1) * sizes.blocks * sizes.handed_on


HOOKS = AxisHooks(
    textbook=lambda run: Term("8 (t - 1) L a w", sent),
    refuse=refuse,
    exchange=exchange,
    hold=hold,
    divides=lambda model, mesh, name: name in even_split_table(model, mesh.tensor),
    outputs=outputs,
    splits_between=splits_sequence,
)
