"""What the textbooks say of a step: one-line formulas that leave out padding, buckets, framing and uneven stages.

They are printed next to the predictions of `costs/` for a backend, which shows where theory and backend differ. `LETTERS` are
those of `docs/predicting.md`. The bytes sent along each axis are in `common/axes/`, and are added up here.

References:
    Rajbhandari et al., arXiv 1910.02054, sections 3, 5 and 7 (ZeRO); Shoeybi et al., arXiv 1909.08053, section 3 (tensor);
    Narayanan et al., arXiv 2104.04473, sections 2.2 and 3.2 (pipeline, and all together); Korthikanti et al., arXiv
    2205.05198, section 4 (activations).
"""

import functools
import math

from samestep.common.axes.axis import Sizes
from samestep.common.axes.used import hooks_of, used
from samestep.common.costs.optimizer_state import optimizer_bytes, spreads_state
from samestep.common.costs.saved_activations.activations import textbook_block_bytes
from samestep.common.strategy import Formula, Run
from samestep.common.techniques import used as techniques
from samestep.common.workload.models.spec import num_params

_ZERO, _MEGATRON = "Rajbhandari et al. 2020", "Narayanan et al. 2021"
_AXES = {"d": "data", "c": "context", "e": "expert", "s": "shard", "t": "tensor", "p": "pipe"}
LETTERS = {
    "w": "bytes of a weight",
    "g": "bytes of a gradient",
    "k": "bytes of the optimizer state of a parameter",
    "Ψ": "parameters",
    "Ψe": "parameters in experts",
    "Ψs": "parameters elsewhere",
    "N": "devices",
    **{letter: f"devices along {axis}" for letter, axis in _AXES.items()},
    "L": "blocks",
    "a": "activations after a block, of the whole batch",
    "κ": "experts of a token",
    "m": "micro-batches",
    "v": "stages of a rank",
    "B": "examples of a device or micro-batch",
    "T": "tokens of an example",
    "D": "width",
    "H": "heads",
}
"""Letter in the formulas -> its meaning."""


def formulas(run: Run, backend: str) -> tuple[Formula, ...]:
    """Returns the textbook formulas for a run; nothing for strategies that textbooks lack or exchanges other than plain sums.

    All numbers in these formulas have one size, so for mixed precision they describe only what a device holds.

    Args:
        run: What is trained.
        backend: The backend that carries its exchanges; textbooks have a link between any two devices, and one process has none.
    """
    if not (told := run.strategy.textbook(run)):
        return ()
    told = (*told, *_activations(run))
    covered = [each.in_textbooks for each in techniques.used(run.techniques) if each.in_textbooks is not None]
    covered += [{each.quantity for each in told} - {"sent"}] * (backend == "memory")
    return tuple(formula for formula in told if all(formula.quantity in quantities for quantities in covered))


def _activations(run: Run) -> tuple[Formula, ...]:
    """Returns what a transformer's blocks keep on the first rank of its pipeline; nothing for other models and schedules."""
    sizes, mesh, rows = run.workload.model.facts.sizes, run.mesh, run.batch_size // run.passes
    if not sizes.layers or sizes.is_gated or sizes.routed_experts:  # the formula does not cover their mlps
        return ()
    rows //= mesh.replicas
    for axis in used(mesh):
        if (turns := axis.turns(run)) is None:
            return ()
        rows //= turns
    parts = mesh.parts("positions")
    kept = sizes.layers * textbook_block_bytes(sizes, rows, run.item_bytes, mesh.parts("features")) / parts
    text = "L T D B (4 w + 2 + 12 w / t + (2 w + 1) H T / (D t))" + " / c" * (parts > 1)
    return (Formula("activations", kept, text, "Korthikanti et al. 2022, section 4.2"),)


def zero(run: Run, stage: int) -> tuple[Formula, ...]:
    """Returns the formulas of the ZeRO paper for a step.

    Args:
        run: What is trained.
        stage: The stage of ZeRO; 0 is plain data parallelism, in which every device holds everything.
    """
    if run.mesh.parts("stacked") > 1:  # the paper has no experts
        return ()
    model, shards = num_params(run.workload.model), run.mesh.parts("parameters") if stage else 1
    shards = shards if shards > 1 else run.num_devices
    weights, gradients, state = run.item_bytes, run.item_bytes, optimizer_bytes(run, model) / model
    held, text = [
        (weights + gradients + state, "(w + g + k) Ψ"),
        (weights + gradients + state / shards, "(w + g) Ψ + k Ψ / N"),
        (weights + (gradients + state) / shards, "w Ψ + (g + k) Ψ / N"),
        ((weights + gradients + state) / shards, "(w + g + k) Ψ / N"),
    ][stage]
    factor = 3 if stage == 3 else 2
    state = Formula("state", held * model, text, f"{_ZERO}, section {5 if stage else 3}")
    if run.mesh.parts("positions") > 1:  # attention sends as well, which the paper does not cover
        return (state,)
    sent = factor * (run.num_devices - 1) * weights * model
    return state, Formula("sent", sent, f"{factor} (N - 1) w Ψ", f"{_ZERO}, section 7")


REPLICATED, ZERO1, ZERO2, ZERO3 = (functools.partial(zero, stage=stage) for stage in range(4))


def split(run: Run) -> tuple[Formula, ...]:
    """Returns the formulas of the papers on Megatron-LM for a step whose model is split by layers, inside them, or both."""
    model, mesh, replicas = run.workload.model, run.mesh, math.prod(map(run.mesh.axis, run.mesh.replica_axes))
    each = 2 * run.item_bytes + optimizer_bytes(run, num_params(model)) / num_params(model)
    of_experts = sum(param.size for param in model.params().values() if param.stacked)
    whole = num_params(model) - of_experts + of_experts / mesh.parts("stacked")
    others = math.prod(map(mesh.parts, ("parameters", "features", "layers")))
    held, text, source = each * whole / others, "(w + g + k) Ψ / (s t p)", f"{_MEGATRON}, section 3"
    if spreads_state(run):
        held = (2 * run.item_bytes + (each - 2 * run.item_bytes) / replicas) * whole / others
        text, source = "(w + g + k / (d c)) Ψ / (t p)", f"{_ZERO}, section 5"
    if mesh.parts("stacked") > 1:
        text = "(w + g + k) (Ψs + Ψe / e)" + (" / (s t p)" if others > 1 else "")
    told = [Formula("state", held, text, source)]
    if (handed_on := _handed_on(run)) is not None:
        sizes = Sizes(run.item_bytes * num_params(model), handed_on, len(model.segments()) - 2)
        terms = [axis.textbook(run) for axis in used(mesh) or map(hooks_of, run.strategy.axes)]
        sent = sum(term.value(run, sizes) for term in terms)
        told.append(Formula("sent", sent, " + ".join(term.text for term in terms), f"{_MEGATRON}, section 3.2"))
    waits = [idle for axis in used(mesh) if (idle := axis.idle(run))]
    told += [Formula("idle share", each.share, each.text, f"{_MEGATRON}, section 2.2") for each in waits]
    return tuple(told)


def _handed_on(run: Run) -> int | None:
    """Returns the bytes that a block hands on for the whole batch; None where blocks differ, and for models without positions."""
    *blocks, _ = run.workload.model.segments()
    outputs = {segment.outputs for segment in blocks}
    if len(outputs) != 1 or len(shape := outputs.pop()) != 2:
        return None
    return run.batch_size * shape[0] * shape[1] * run.item_bytes
