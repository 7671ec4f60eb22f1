"""Models split inside their layers: every rank computes its part of each pair of layers on the whole batch.

With A bytes of activations in a pair's outputs, and as many in its inputs, a step all-reduces A forward and A backward
for each pair: for a transformer's block twice each. A softmax over logits in parts all-reduces three numbers a target.

References:
    Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.
"""

import dataclasses
import math
from collections.abc import Sequence

from common.config import RunConfig
from common.evidence.laws.collectives import (
    ITEM_BYTES,
    all_gather_bytes,
    all_reduce_bytes,
    framing_bytes,
    reduce_scatter_bytes,
)
from common.evidence.laws.pipelined import parameters_in
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import Cut, ModelSpec, even_split_table
from common.workload.table import Workload

_SAME_INPUT = ("attention/key", "attention/value")
"""They read what the query reads; the gradient of that is summed once."""


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective of a step.

    Attributes:
        name: "all_reduce", "all_gather" or "reduce_scatter".
        elements: Of what one rank hands over.
    """

    name: str
    elements: int


def held_elements(model: ModelSpec, parts: int) -> dict[str, int]:
    """Parameter name -> how many of its elements one of the ranks holds."""
    split = even_split_table(model, parts)
    return {name: param.size // (parts if name in split else 1) for name, param in model.params().items()}


def collectives(
    model: ModelSpec, parts: int, batch: int, sequence_parallel: bool = False, cuts: Sequence[Cut] | None = None
) -> list[Collective]:
    """Every collective of a step: forward behind each row cut, backward before each column cut, and for the loss.

    Args:
        model: Its spec.
        parts: The number of ranks.
        batch: How many examples they take.
        sequence_parallel: Whether what lies between the pairs is cut as well.
        cuts: The part of the model that is meant; all of it, unless given.
    """
    params = model.params()
    meant = parameters_in(model, model.cuts() if cuts is None else cuts)
    split = [(n, axis) for n, axis in even_split_table(model, parts).items() if n in meant and not n.endswith("/bias")]
    targets = math.prod(model.targets().shape)
    looked_up, row, column = [], [], []
    for name, axis in split:
        shape, reads_data = params[name].shape, name == next(iter(params)) and model.inputs().ids is None
        if params[name].lookups:
            looked_up.append(params[name].lookups * shape[1])
        elif axis == 0:
            row.append(targets * shape[1])
        elif not reads_data and not name.removesuffix("/kernel").endswith(_SAME_INPUT):
            column.append(targets * shape[0])
    ends = bool(split) and split[-1][1] == 1 and split[-1][0].startswith(f"{model.cuts()[-1].name}/")
    loss = [targets] * (3 if ends else 0)
    if not sequence_parallel:
        return [Collective("all_reduce", elements * batch) for elements in looked_up + row + column + loss]
    norms = [param.size for name, param in params.items() if "norm/" in name]
    return [
        *(Collective("all_reduce", elements * batch) for elements in looked_up + loss),
        *(Collective("all_reduce", size) for size in norms),
        # Forward and back at either end of a pair, and the gradient of the embedding's output, which each rank cut.
        *(Collective("all_gather", elements * batch // parts) for elements in row + column + looked_up),
        *(Collective("reduce_scatter", elements * batch) for elements in row + column),
    ]


def sent_bytes(each: Collective, parts: int, item: int, backend: str) -> float:
    """What each rank sends in a collective.

    Args:
        each: The collective.
        parts: The number of ranks.
        item: Bytes of an element.
        backend: "gloo" or "nccl".
    """
    size = each.elements * item
    payload = {
        "all_reduce": all_reduce_bytes(size, parts),
        "all_gather": all_gather_bytes(size, parts),
        "reduce_scatter": reduce_scatter_bytes(size, parts, backend),
    }[each.name]
    return payload + framing_bytes(each.name, parts, backend)


def paired(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Every rank has its part of each cut layer, and all of the rest.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    parts = Mesh.parse(config.mesh or "tensor=1").size
    item = ITEM_BYTES[config.dtype]
    held = sum(held_elements(workload.model, parts).values()) * item
    slots = len(workload.optimizer(config).slots) * held
    footprint = Footprint("each", held, held, held, slots, "law")
    sequence_parallel = bool(config.options.get("sequence_parallel"))
    passes = config.techniques.micro_batches
    taken: list[Collective] = []
    if parts > 1:
        taken += collectives(workload.model, parts, (config.batch_size or 0) // passes, sequence_parallel) * passes
        if config.techniques.clip_norm is not None:  # the norm of each parameter that is cut
            taken += [Collective("all_reduce", 1)] * len(even_split_table(workload.model, parts))
    exchanges = tuple(
        Exchange(name, len(sizes), sum(sizes))
        for name in ("all_gather", "all_reduce", "reduce_scatter")
        if (sizes := [each.elements * item for each in taken if each.name == name])
    )
    sent = sum(sent_bytes(each, parts, item, backend) for each in taken)
    return Ledger((footprint,) * parts, exchanges, sent * parts)
