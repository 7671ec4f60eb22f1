"""The axis `context`: every device has the whole model, or the same part of it, and of each example some of the positions.

With t positions of a rank, N ranks, B examples of a pass and D the width, an attention hands over 3 B t D numbers forward, for
queries, keys and values, and B t D for what it mixed; as many backward. All-to-all, of which a rank keeps 1/N.

References:
    Jacobs et al., arXiv 2309.14509, section 3.1 (4 M / P for messages of M: three of them and one).
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from samestep.common.axes.axis import AxisHooks, Sizes, StagePass, Term, Within
from samestep.common.errors import ConfigError
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Segment, layer, parameters_of

if TYPE_CHECKING:
    from samestep.common.workload.models.transformer import TransformerSpec


def refuse(run: Run) -> None:
    """Refuses models without positions, and unequal parts of a sequence or of the heads that the axis `tensor` has left.

    Raises:
        ConfigError: The model is not our transformer, or a part is unequal.
    """
    count, model, name = run.mesh.axis("context"), run.workload.model, run.workload.name
    params = model.params().values()
    if model.facts.source or not any(param.shares_input for param in params):  # attention does
        raise ConfigError(
            f"a context axis cuts the sequences of our transformer, as in prose-gpt, and {name} is another model; "
            "choose another strategy."
        )
    (positions,), heads = model.inputs().shape, max(param.groups for param in params) // run.mesh.parts("features")
    if positions % count:
        raise ConfigError(f"a sequence of {positions} does not divide among a context axis of {count}; give +context=.")
    if heads % count:
        raise ConfigError(
            f"{heads} heads do not divide among a context axis of {count}; use one that divides {heads}, or another number of "
            "+heads=."
        )


def leave(run: Run) -> Run:
    """Returns the run with a model of as many positions as one rank has."""
    model = cast("TransformerSpec", run.workload.model)  # other models are refused
    local = dataclasses.replace(model, context=model.context // run.mesh.axis("context"))
    return dataclasses.replace(run, workload=dataclasses.replace(run.workload, model=local))


def exchange(run: Run, stage: StagePass, segment: Segment) -> Iterator[Within]:
    """Yields the two all-to-all exchanges of an attention: positions for heads ahead of it, and back behind it.

    Args:
        run: What is trained, as one rank sees it.
        stage: The pass.
        segment: The segment.
    """
    if (place := _attention(run.workload.model, segment)) is None:
        return
    model = cast("TransformerSpec", run.workload.model)
    of_tensor = stage.rows * model.context * model.width // run.mesh.parts("features") * run.product_bytes
    for tensors in (3, 1):
        send = Send(stage.phase, "all_to_all", "context", run.mesh.axis("context"), tensors * of_tensor)
        yield Within(place, send)


def keeps(model: ModelSpec, segment: Segment, item_bytes: int, parts: int) -> int:
    """Returns the bytes of the outputs of an attention: on one device they are the same memory as what the layer behind takes.

    Here they were sent in between.

    Args:
        model: The model as one rank sees it.
        segment: A segment of it.
        item_bytes: The bytes of a number.
        parts: The size of the axis `tensor`, along which heads are in parts.
    """
    if _attention(model, segment) is None:
        return 0
    return cast("TransformerSpec", model).context * cast("TransformerSpec", model).width * item_bytes // parts


def _attention(model: ModelSpec, segment: Segment) -> int | None:
    """Returns the number of the last of the layers that an attention's inputs come from; None if the segment has no attention."""
    params = parameters_of(model, segment)
    layers = list(dict.fromkeys(map(layer, params)))
    return max(
        (layers.index(layer(name)) for name, param in params.items() if param.shares_input and param.groups),
        default=None,
    )


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of the attentions' exchanges, both ways, and of gradients summed over one axis more.

    Args:
        run: What is trained.
        sizes: What the term counts in.
    """
    count = run.mesh.axis("context")
    return 2 * run.mesh.data * (count - 1) * sizes.params + 8 * (count - 1) / count * sizes.blocks * sizes.handed_on


TEXTBOOK = Term("2 d (c - 1) w Ψ + 8 (c - 1) L a w / c", sent)
HOOKS = AxisHooks(textbook=TEXTBOOK, refuse=refuse, leave=leave, exchange=exchange, keeps=keeps)
