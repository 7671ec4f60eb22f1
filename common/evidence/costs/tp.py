"""Models split inside their layers: every rank computes its part of each pair of layers on the full batch.

With A bytes of activations in a pair's outputs, and as many in its inputs, a step all-reduces A forward and A backward
for each pair: for a transformer's block twice each. A softmax over logits in parts all-reduces three numbers a target.

References:
    Shoeybi et al., arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section 4.2.
"""

import dataclasses
import math
from collections.abc import Sequence

from samestep.common.evidence.costs.collectives import merged, sent_bytes
from samestep.common.evidence.costs.sizes import holder, tensor_elements
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Segment, layer, parameters_of
from samestep.common.workload.split import even_split_table


def cost(run: Run, backend: str) -> Ledger:
    """Every rank has its shard of each split layer, and all of the rest.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the collectives of both passes.
    """
    model, parts = run.workload.model, run.mesh.axis("tensor")
    taken: list[Exchange] = []
    if parts > 1:
        rows = run.batch_size // run.accumulation_steps
        taken += _collectives(run, rows) * run.accumulation_steps
        if run.techniques.need_norm:  # the norm of each parameter that is split
            taken += [Exchange("all_reduce", 1, run.item_bytes)] * len(even_split_table(model, parts))
    sent = sum(sent_bytes(each, parts, backend) for each in taken)
    exchanges = merged(sorted(taken, key=lambda each: each.name))
    return Ledger((holder(run, tensor_elements(model, parts)),) * parts, exchanges, sent * parts)


def _collectives(run: Run, rows: int) -> list[Exchange]:
    """Every collective of a micro-batch of `rows` examples."""
    model, parts, row_bytes = run.workload.model, run.mesh.axis("tensor"), rows * run.item_bytes
    sums = partial_sums(model, parts, model.segments())
    if not run.options.sequence_parallel:
        return [Exchange("all_reduce", 1, elements * row_bytes) for elements in sums.every]
    params = model.params()
    norms = {layer(name) for name, param in params.items() if param.role == "scale"}
    return [
        *(Exchange("all_reduce", 1, elements * row_bytes) for elements in sums.tables + sums.loss),
        *(Exchange("all_reduce", 1, p.size * run.item_bytes) for name, p in params.items() if layer(name) in norms),
        # Forward and back at either end of a pair, and the gradient of the embedding's output, which each rank cut.
        *(Exchange("all_gather", 1, n * rows // parts * run.item_bytes) for n in sums.pairs + sums.tables),
        *(Exchange("reduce_scatter", 1, elements * row_bytes) for elements in sums.pairs),
    ]


@dataclasses.dataclass(frozen=True)
class PartialSums:
    """What is partial along the tensor axis and summed in a step: the elements of each sum, per example.

    Attributes:
        tables: The rows looked up in each split table.
        pairs: Forward, the outputs of each layer split by row; backward, the inputs of each split by column.
        loss: The three numbers of a softmax over split logits, for all targets.
    """

    tables: list[int]
    pairs: list[int]
    loss: list[int]

    @property
    def every(self) -> list[int]:
        """All of them."""
        return self.tables + self.pairs + self.loss


def partial_sums(model: ModelSpec, parts: int, segments: Sequence[Segment]) -> PartialSums:
    """What is summed for some segments of a model.

    Args:
        model: Its spec.
        parts: The size of the tensor axis.
        segments: The part of the model that is meant.
    """
    params, meant = model.params(), parameters_of(model, *segments)
    table = even_split_table(model, parts)
    split = {name: axis for name, axis in table.items() if name in meant and params[name].role != "bias"}
    first = "" if model.inputs().ids else next(iter(params))  # it reads data, whose gradient nobody needs
    targets = math.prod(model.targets().shape)
    kernels = {name: params[name] for name in split if not params[name].lookups}
    rows = [targets * param.shape[1] for name, param in kernels.items() if split[name] == 0]
    columns = [
        targets * param.shape[0]
        for name, param in kernels.items()
        if split[name] == 1 and name != first and not param.shares_input
    ]
    last = next(reversed(split), "")
    splits_logits = split.get(last) == 1 and last in parameters_of(model, model.segments()[-1])
    return PartialSums(
        tables=[params[name].lookups * params[name].shape[1] for name in split if name not in kernels],
        pairs=rows + columns,
        loss=[targets] * (3 if splits_logits else 0),
    )
