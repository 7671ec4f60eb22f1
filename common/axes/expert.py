"""The axis `expert`: every device has some experts of each block, takes different examples, and sends tokens to their experts.

With n tokens a rank, k experts a token and width D, a block sends n k D numbers to experts, and as many are returned; the same
again in the backward pass. Each is an all-to-all, of which a rank keeps 1/N if every expert takes the same number of tokens.
What a rank sends to experts, and the gradients of what it gets back, are n k D numbers in every step. The size of the other two
depends on how many tokens the rank's experts take, which the router decides; a prediction made before the step assumes that all
experts take equally many. Where all parts of an all-to-all have to be equal, each has room for all n k tokens: N times as much.

Gradients of experts are summed over the ranks that have the same experts, and all other gradients over all ranks that take
different examples.

References:
    Lepikhin et al., arXiv 2006.16668, section 3.2 (all-to-all); Rajbhandari et al., arXiv 2201.05596, section 4.1.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping

from samestep.common.axes.axis import AxisHooks, BlockPass, SegmentExchange, Sizes, StagePass, Term
from samestep.common.errors import ConfigError
from samestep.common.frameworks import conventions
from samestep.common.ledger import Send
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Param, Segment, layer, num_positions, parameters_of

COUNT_BYTES = 8
"""The bytes of the number of tokens that an expert takes from a rank. Ranks exchange these numbers first."""


def refuse(run: Run) -> None:
    """Refuses models without experts, and experts that do not divide equally.

    Raises:
        ConfigError: The model has no experts, or they do not divide.
    """
    count, num = run.mesh.axis("expert"), run.workload.model.facts.sizes.routed_experts
    if not num:
        raise ConfigError(
            f"an expert axis cuts mixtures of experts, and {run.workload.name} has none; choose --workload "
            f"prose-gpt+experts={2 * count}, or another strategy."
        )
    if num % count:
        raise ConfigError(
            f"{num} experts do not divide among an expert axis of {count}; use an axis whose size divides {num}, or "
            "another "
            "number of +experts=."
        )


def hold(model: ModelSpec, mesh: Mesh, params: Mapping[str, Param]) -> dict[str, Param]:
    """Returns the parameters that a device holds: all of them, but only a part of each parameter of experts.

    Args:
        model: The model.
        mesh: All devices.
        params: The parameters, by name.
    """
    count = mesh.axis("expert")
    return {name: _own(param, count) if param.stacked else param for name, param in params.items()}


@functools.cache
def _own(param: Param, count: int) -> Param:
    """Returns a device's part of the experts of a block. It is cached, since the blocks of a model are alike."""
    own = param.stacked // count
    return dataclasses.replace(param, shape=(own, *param.shape[1:]), stacked=own)


def exchange(run: Run, stage: StagePass, segment: Segment) -> Iterator[SegmentExchange]:
    """Yields what a mixture of experts exchanges: how many tokens each expert takes, the tokens, and what the experts return.

    Args:
        run: What is trained, as one rank sees it.
        stage: The pass.
        segment: The segment.
    """
    params = parameters_of(run.workload.model, segment)
    if not (stacked := {name: param.stacked for name, param in params.items() if param.stacked}):
        return
    num, ranks = max(stacked.values()), run.mesh.axis("expert")
    sizes = run.workload.model.facts.sizes
    places = [place for place, path in enumerate(dict.fromkeys(map(layer, params))) if f"{path}/kernel" in stacked]
    ahead, behind = places[0] - 1, places[-1] + 1  # axes that cut experts exchange in between
    of_tokens = stage.rows * num_positions(run.workload.model) * sizes.top_k * sizes.width * run.product_bytes
    of_tokens *= ranks if conventions(run.framework).has_equal_parts else 1
    counts = [(ahead, num * COUNT_BYTES)] if stage.phase == "forward" else []
    for place, size in [*counts, (ahead, of_tokens), (behind, of_tokens)]:
        yield SegmentExchange(place, Send(stage.phase, "all_to_all", "expert", ranks, size))


def keeps(model: ModelSpec, segment: Segment, item_bytes: int, parts: int) -> int:
    """Returns the bytes in which a mixture keeps the order of tokens from other ranks: two ids for each token of an expert.

    Args:
        model: The model as one rank sees it.
        segment: A segment of it.
        item_bytes: The bytes of a number.
        parts: The size of the axis `tensor`, along which every device has all ids.
    """
    if not any(param.stacked for param in parameters_of(model, segment).values()):
        return 0
    return 2 * COUNT_BYTES * num_positions(model) * model.facts.sizes.top_k


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of tokens, to experts and back in both passes, and of all gradients but those of experts.

    Args:
        run: What is trained.
        sizes: The sizes in which the term is expressed.
    """
    model, count = run.workload.model, run.mesh.axis("expert")
    taken = model.facts.sizes.top_k
    shared = sum(param.size for param in model.params().values() if not param.stacked) * run.item_bytes
    replicas = math.prod(map(run.mesh.axis, run.mesh.expert_replica_axes))
    return 2 * replicas * (count - 1) * shared + 4 * taken * (count - 1) / count * sizes.blocks * sizes.handed_on


def all_to_all(block: BlockPass) -> tuple[float, ...]:
    """Returns how many numbers are sent to experts, and as many that are returned: of whole tokens, or of their parts."""
    own = block.tokens / (block.parts if block.splits_between else 1)
    return (own * block.taken * block.width,) * (2 if block.taken else 0)


def _textbook(run: Run) -> Term:
    replicas = "d c" if run.mesh.parts("positions") > 1 else "d"
    return Term(f"2 {replicas} (e - 1) w Ψs + 4 κ (e - 1) L a w / e", sent)


HOOKS = AxisHooks(
    textbook=_textbook,
    refuse=refuse,
    exchange=exchange,
    hold=hold,
    divides=lambda model, mesh, name: model.params()[name].stacked > 0,
    keeps=lambda run: keeps,
    all_to_all=all_to_all,
    about="the exchanges of tokens and experts",
    most=lambda model, mesh: max(1, model.facts.sizes.routed_experts),
)
