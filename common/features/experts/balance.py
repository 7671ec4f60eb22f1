"""The load-balancing loss of a mixture of experts: one definition for all three mirrors.

A router gives each of T tokens of the GLOBAL batch a probability for each of E experts; the token takes the `top_k` = k largest.
Each block adds to the mean loss

    balance x E x sum over experts of f x P,    f = (tokens that take the expert) / (k T),    P = (sum of its probabilities) / T

If the tokens are spread evenly, both f and P are 1 / E, and the loss is `balance`. It is not a mean over shards: f of the
whole batch multiplies each P, so in every step ranks sum the tokens of each expert, L x E numbers, between the forward and the
backward pass. f is a count and has no gradient.

References:
    Fedus et al., arXiv 2101.03961, equations 4 to 6; Qiu et al., arXiv 2501.11873 (of the global batch).
"""

from collections.abc import Iterator, Mapping

from samestep.common.errors import ConfigError
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, num_positions

BALANCED = "+experts= with +balance= above 0"
"""The settings that ask for the loss, in the words of messages."""
NOT_ROUNDED = "it rounds the router's scores, so a token that is close to two experts may take the other one"
"""The reason why a mixture of experts takes no technique that rounds a pass, under any row."""
AS_WRITTEN = "it needs shapes that are known before a step, but the number of tokens of an expert is not"
"""The reason why a mixture of experts takes no technique that compiles a pass."""


def balance_of(model: ModelSpec) -> float:
    """Returns the weight of the load-balancing loss; 0 for a model without experts."""
    return float(model.facts.settings.get("balance") or 0.0) if model.facts.sizes.routed_experts else 0.0


def scale_of(run: Run) -> float:
    """Returns the factor of a block's sum over experts of (tokens that take it) x (sum of its probabilities)."""
    model = run.workload.model
    tokens = run.batch_size * num_positions(model)
    return balance_of(model) * model.facts.sizes.routed_experts / (model.facts.sizes.top_k * tokens * tokens)


def check_balance(run: Run) -> None:
    """Refuses what would change the load-balancing loss, or make a mixture of experts impossible to judge.

    Raises:
        ConfigError: The run asks for such a thing.
    """
    model = run.workload.model
    if not model.facts.sizes.routed_experts:
        return
    if run.product_bytes != run.item_bytes:
        raise ConfigError(
            f"--precision: {NOT_ROUNDED}: no bound says by how much a step may differ; leave out --precision, or "
            "+experts=."
        )
    if run.techniques.compile:
        raise ConfigError(f"--compile: {AS_WRITTEN}; leave it out.")
    for is_asked, why in _conflicts(run) if balance_of(model) else ():
        if is_asked:
            raise ConfigError(f"{why}, or give +balance=0.")


def _conflicts(run: Run) -> Iterator[tuple[bool, str]]:
    """Yields what conflicts with a load-balancing loss of the whole batch: whether the run has it, and the reason in words."""
    yield (
        run.mesh.parts("layers") > 1,
        f"{run.name} cannot take {BALANCED}: it computes the load-balancing loss in its last stage, which does not have the "
        "routers of other stages; choose torch:ddp",
    )
    yield (
        run.passes > 1,
        "the load-balancing loss depends on the whole batch, and --accumulation-steps sees one micro-batch at a "
        "time; leave it out",
    )


def summed_tokens(run: Run, phase: str) -> Mapping[str, Send]:
    """Returns the sum, over all devices, of the tokens of each expert of each block.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    model = run.workload.model
    if phase != "forward" or not balance_of(model) or not run.mesh.batch_axes:
        return {}
    size = model.facts.sizes.layers * model.facts.sizes.routed_experts * run.item_bytes
    return {"balance": Send(phase, "all_reduce", run.mesh.only_axis, run.num_devices, size)}
