"""The axis `context`: every device has the whole model, or the same part of it, and some of the positions of each example.

With t positions a rank, N ranks, B examples a pass and width D, the keys and values of a rank are 2 B t D numbers. How
attention layers exchange them is an option of the row:

    heads     3 B t D numbers forward, for queries, keys and values, and B t D for the outputs of attention; as many backward.
              Each is an all-to-all, of which a rank keeps 1/N.
    gather    keys and values, gathered in both passes; in the backward pass also their gradients, reduce-scattered.
    ring      keys and values to the next rank, N - 1 times in each pass; in the backward pass their gradients go round as well,
              N times.

With `gather` and `ring`, late positions attend to more keys than early ones. In torch, a rank therefore has a piece from the
start of each example and one equally far from its end (a zigzag), so every rank computes the same number of scores. TensorFlow
also computes the scores of later keys, and has no zigzags.

References:
    Jacobs et al., arXiv 2309.14509, section 3.1 (4 M / P for messages of M: three of them and one); Liu et al., arXiv 2310.01889
    (ring); Grattafiori et al., arXiv 2407.21783, section 3.3.2 (gathered keys and values, two pieces for each rank).
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping

from samestep.common.axes.axis import (
    AxisHooks,
    BlockPass,
    Keeps,
    SegmentExchange,
    Sizes,
    StagePass,
    Term,
    keeps_nothing,
)
from samestep.common.errors import ConfigError
from samestep.common.ledger import Send
from samestep.common.mesh import GATHER, HEADS, RING, Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Segment, layer, parameters_of


def refuse(run: Run) -> None:
    """Refuses models without positions, and sequences or heads (as the axis `tensor` leaves them) that do not divide equally.

    Raises:
        ConfigError: The model is not our transformer, or the parts are unequal.
    """
    count, model, name = run.mesh.axis("context"), run.workload.model, run.workload.name
    if not model.facts.sizes.heads:
        raise ConfigError(
            f"a context axis cuts the sequences of our transformer, as in prose-gpt, and {name} is another model; "
            "choose another strategy."
        )
    (positions,), heads = model.inputs().shape, model.facts.sizes.heads // run.mesh.parts("features")
    if positions % count:
        raise ConfigError(
            f"a sequence of {positions} positions does not divide among a context axis of {count}; give +context= a "
            f"multiple of {count}."
        )
    if run.asked.is_zigzag and positions % (2 * count):
        raise ConfigError(
            f"with --attention-exchange {run.asked.attention_exchange} each rank has two pieces of a sequence, and {positions} "
            f"positions are not {2 * count} equal pieces; give +context= a multiple of {2 * count}, or "
            "--attention-exchange heads."
        )
    if heads % count and run.asked.attention_exchange == HEADS:
        raise ConfigError(
            f"{heads} heads do not divide among a context axis of {count}; use an axis whose size divides {heads}, "
            "or another number of "
            "+heads=."
        )


def leave(run: Run) -> Run:
    """Returns the run with a model that has only the positions of one rank."""
    local = _shortened(run.workload.model, run.mesh.axis("context"))
    return dataclasses.replace(run, workload=dataclasses.replace(run.workload, model=local))


@functools.lru_cache(maxsize=64)  # a search asks for each with many pipelines
def _shortened(model: ModelSpec, parts: int) -> ModelSpec:
    """Returns the model with the positions of one of so many parts."""
    return dataclasses.replace(model, context=model.facts.sizes.context // parts)


def exchange(run: Run, stage: StagePass, segment: Segment) -> Iterator[SegmentExchange]:
    """Yields the exchanges of an attention.

    Args:
        run: What is trained, as one rank sees it.
        stage: The pass.
        segment: The segment.
    """
    if (place := _attention(run.workload.model, segment)) is None:
        return
    sizes = run.workload.model.facts.sizes
    of_tensor = stage.rows * sizes.context * sizes.width // run.mesh.parts("features") * run.product_bytes
    for send in _SENDS[run.asked.attention_exchange](stage.phase, run.mesh, of_tensor):
        yield SegmentExchange(place, send)


def _heads(phase: str, mesh: Mesh, of_tensor: int) -> Iterator[Send]:
    """Yields the two all-to-all exchanges: from positions to heads before an attention, and back after it.

    Args:
        phase: "forward" or "backward".
        mesh: All devices.
        of_tensor: The bytes of a rank's queries; its keys and its values have as many.
    """
    for tensors in (3, 1):
        yield Send(phase, "all_to_all", "context", mesh.axis("context"), tensors * of_tensor)


def _gather(phase: str, mesh: Mesh, of_tensor: int) -> Iterator[Send]:
    """Yields the gather of keys and values, and the scatter of their gradients; the arguments are those of `_heads`."""
    ranks = mesh.axis("context")
    if phase == "backward":  # whose order is reversed
        yield Send(phase, "reduce_scatter", "context", ranks, 2 * of_tensor * ranks)
    yield Send(phase, "all_gather", "context", ranks, 2 * of_tensor)


def _ring(phase: str, mesh: Mesh, of_tensor: int) -> Iterator[Send]:
    """Yields the messages to the next rank; the arguments are those of `_heads`."""
    ranks = mesh.axis("context")
    hops, following = ranks - 1 if phase == "forward" else 2 * ranks - 1, mesh.members("context", ranks, 0)[1]
    yield Send(phase, "send", "context", ranks, 2 * of_tensor * hops, hops, to=str(following))


_SENDS = {HEADS: _heads, GATHER: _gather, RING: _ring}


def keeps(run: Run) -> Keeps:
    """Returns what attention keeps in addition to what it keeps on one device: if heads are exchanged, the outputs it sends."""
    return _outputs if run.asked.attention_exchange == HEADS else keeps_nothing


def _outputs(model: ModelSpec, segment: Segment, item_bytes: int, parts: int) -> int:
    """Returns the bytes of the outputs of an attention; the arguments are those of `Keeps`.

    On one device they are in the same memory as the inputs of the next layer. Here they are sent in between.
    """
    if _attention(model, segment) is None:
        return 0
    return model.facts.sizes.context * model.facts.sizes.width * item_bytes // parts


def _attention(model: ModelSpec, segment: Segment) -> int | None:
    """Returns the number of the last layer that produces inputs of an attention; None if the segment has no attention."""
    params = parameters_of(model, segment)
    layers = list(dict.fromkeys(map(layer, params)))
    return max(
        (layers.index(layer(name)) for name, param in params.items() if param.shares_input and param.groups),
        default=None,
    )


def all_to_all(block: BlockPass) -> tuple[float, float]:
    """Returns the numbers of each all-to-all: queries, keys and values (at least a head per rank), and outputs of attention."""
    keys = max(block.keys, block.parts * block.ranks * block.head)
    return block.tokens * (block.queries + 2 * keys) / block.parts, block.tokens * block.values / block.parts


def _textbook(run: Run) -> Term:
    """Returns the bytes of the exchanges of attention in both passes, and of gradients, which are summed over one more axis."""
    factor, text = _FACTORS[run.asked.attention_exchange]

    def sent(run: Run, sizes: Sizes) -> float:
        count = run.mesh.axis("context")
        replicas = math.prod(map(run.mesh.axis, run.mesh.expert_replica_axes)) // count
        return 2 * replicas * (count - 1) * sizes.params + factor(count) * sizes.blocks * sizes.handed_on

    return Term(f"2 d (c - 1) w Ψ + {text}", sent)


_FACTORS: Mapping[str, tuple[Callable[[int], float], str]] = {
    HEADS: (lambda count: 8 * (count - 1) / count, "8 (c - 1) L a w / c"),
    GATHER: (lambda count: 6 * (count - 1), "6 (c - 1) L a w"),
    RING: (lambda count: 6 * count - 4, "(6 c - 4) L a w"),
}
"""Kind of exchange -> how often all devices send the activations of a block, given their number, and the formula."""
HOOKS = AxisHooks(
    textbook=_textbook,
    refuse=refuse,
    leave=leave,
    exchange=exchange,
    keeps=keeps,
    all_to_all=all_to_all,
    about="the exchanges of attention along context",
    most=lambda model, mesh: max(1, model.facts.sizes.heads // mesh.parts("features")),
)
