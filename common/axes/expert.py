"""The axis `expert`: every device has some of the experts of each block, takes other examples, and sends tokens to their experts.

With n tokens of a rank, each of which takes k experts, and D the width, a block hands over n k D numbers for experts, and as
many for what they return; the same backward. All-to-all, of which a rank keeps 1/N where experts take alike. What a rank
hands to experts, and the gradients of what it gets back, are n k D in every step; the other two are what the experts of the
rank take. A router decides that: predictions ahead of a step expect experts to take alike. Where all parts of an all-to-all
have to be equal, each has room for all n k tokens, whoever takes them: N times as much.

Gradients of experts are summed over the ranks that have the same ones, all others over every rank that takes other examples.

References:
    Lepikhin et al., arXiv 2006.16668, section 3.2 (all-to-all); Rajbhandari et al., arXiv 2201.05596, section 4.1.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from samestep.common.axes.axis import AxisHooks, Sizes, StagePass, Term, Within
from samestep.common.errors import ConfigError
from samestep.common.frameworks import conventions
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Param, Segment, layer, num_positions, parameters_of

if TYPE_CHECKING:
    from samestep.common.workload.models.transformer import TransformerSpec

COUNT_BYTES = 8
"""Of how many tokens of a rank an expert takes, which ranks tell each other first."""


def refuse(run: Run) -> None:
    """Refuses models without experts, and unequal parts of them.

    Raises:
        ConfigError: There are none, or they do not divide.
    """
    count, stacked = run.mesh.axis("expert"), {param.stacked for param in run.workload.model.params().values()} - {0}
    if not stacked:
        raise ConfigError(
            f"an expert axis cuts mixtures of experts, and {run.workload.name} has none; choose --workload "
            f"prose-gpt+experts={2 * count}, or another strategy."
        )
    if (num := max(stacked)) % count:
        raise ConfigError(
            f"{num} experts do not divide among an expert axis of {count}; use one that divides {num}, or another "
            "number of +experts=."
        )


def hold(run: Run, params: Mapping[str, Param]) -> dict[str, Param]:
    """Returns what a device has of parameters: of those of experts a part.

    Args:
        run: What is trained.
        params: By name.
    """
    count, held = run.mesh.axis("expert"), dict(params)
    for name, param in params.items():
        if param.stacked:
            own = param.stacked // count
            held[name] = dataclasses.replace(param, shape=(own, *param.shape[1:]), stacked=own)
    return held


def exchange(run: Run, stage: StagePass, segment: Segment) -> Iterator[Within]:
    """Yields what a mixture exchanges: how much each expert takes, what they take, and what they return.

    Args:
        run: What is trained, as one rank sees it.
        stage: The pass.
        segment: The segment.
    """
    params = parameters_of(run.workload.model, segment)
    if not (stacked := {name: param.stacked for name, param in params.items() if param.stacked}):
        return
    model = cast("TransformerSpec", run.workload.model)  # other models have none
    layers, (first, num), ranks = (
        list(dict.fromkeys(map(layer, params))),
        next(iter(stacked.items())),
        run.mesh.axis("expert"),
    )
    of_tokens = stage.rows * num_positions(model) * model.top_k * model.width * run.product_bytes
    of_tokens *= ranks if conventions(run.framework).has_equal_parts else 1
    for size in [of_tokens] * 2 if stage.phase == "backward" else [num * COUNT_BYTES, of_tokens, of_tokens]:
        yield Within(layers.index(layer(first)), Send(stage.phase, "all_to_all", "expert", ranks, size))


def keeps(model: ModelSpec, segment: Segment, item_bytes: int) -> int:
    """Returns the bytes that a mixture keeps for its order of what other ranks sent: two ids for each token of an expert.

    Args:
        model: The model as one rank sees it.
        segment: A segment of it.
        item_bytes: The bytes of a number.
    """
    if not any(param.stacked for param in parameters_of(model, segment).values()):
        return 0
    return 2 * COUNT_BYTES * num_positions(model) * cast("TransformerSpec", model).top_k


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of tokens, both ways and back, and of the gradients of all but experts summed over one axis more.

    Args:
        run: What is trained.
        sizes: What the term counts in.
    """
    model, count = cast("TransformerSpec", run.workload.model), run.mesh.axis("expert")
    shared = sum(param.size for param in model.params().values() if not param.stacked) * run.item_bytes
    return (
        2 * run.mesh.data * (count - 1) * shared
        + 4 * model.top_k * (count - 1) / count * sizes.blocks * sizes.handed_on
    )


TEXTBOOK = Term("2 d (e - 1) w Ψs + 4 κ (e - 1) L a w / e", sent)
HOOKS = AxisHooks(textbook=TEXTBOOK, refuse=refuse, exchange=exchange, hold=hold, keeps=keeps)
