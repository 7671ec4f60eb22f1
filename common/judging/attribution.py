"""Finds why the run of a user's model left its reference, by switching off one suspect at a time.

On each replica, batch normalization and the user's running buffers see a different batch, and random numbers are drawn
separately. None of this is a mistake in the strategy, so both the run and its reference are repeated without a suspect. If they
then agree, that suspect alone is the cause. Mixing the examples of a batch cannot be switched off, so the run is compared with
the model on one device that takes the same shards one after the other. If they agree, the strategy did what the model does on
shards.
"""

import dataclasses
import functools
from collections.abc import Sequence

from samestep.common.features.feature import Suspect, count_layers
from samestep.common.features.used import find_suspects
from samestep.common.flags import flags, spell_flag
from samestep.common.judging.parity import LOSS_BOUND, Attribution, Parity, deviation
from samestep.common.judging.reference_run import Rerun, reference_of, without_counterpart
from samestep.common.strategy import Run
from samestep.common.techniques.used import flags_of, without

STEPS = 5
"""The number of steps that are repeated. A suspect shows in the first step, or in the second if only its statistics differ."""
PORT, _ON_SHARDS = "as torch's", "on shards:"
"""The ways in which a user's model is not the same function as its reference although the strategy is correct."""


def attribute(run: Run, first: int, parity: Parity, rerun: Rerun) -> Attribution:
    """Finds the cause of a deviation by repeating steps with each suspect switched off.

    Args:
        run: The run that left its reference.
        first: The number of its first step.
        parity: The verdict on the run.
        rerun: Repeats steps of the run.

    Returns:
        The cause; or the verdict's own reason if there is no suspect.
    """
    short = _shortened(run, first)
    if (rounding := _rounding(run)) and _apart(short, reference_of(short), rerun) <= LOSS_BOUND[short.dtype]:
        return Attribution(
            f"{parity.reason}; without {rounding} its {_first(short.steps - first)} {parity.reference}'s"
        )
    size = f"{parity.max_relative_loss:.1e}" if parity.max_relative_loss is not None else "not finite"
    if (evidence := _blame_port(short, rerun)) is not None:
        return blame_model(PORT, size, evidence)
    suspects, unexplained = find_suspects(run), f"{parity.reason}{_not_switched(run)}"
    for suspect in suspects:
        left = _left(_without(short, suspect), rerun)
        if left <= LOSS_BOUND[short.dtype]:
            found = _inseparable(short, suspect, suspects, rerun)
            others = ", and nothing else" if len(found) < len(suspects) else ""
            return _blame_suspects(size, found, others, left)
    every = _without(short, *suspects)
    if len(suspects) > 1 and (left := _left(every, rerun)) <= LOSS_BOUND[every.dtype]:
        return _blame_suspects(size, suspects, "", left)
    if (mixed := _blame_mixing(every, suspects, size, rerun)) is not None:
        return mixed
    if not suspects:
        return Attribution(unexplained)
    names = " and ".join(suspect.what for suspect in suspects)
    return Attribution(
        f"not the same function: the losses are off by {size}, and without {names} still by "
        f"{_left(every, rerun):.0e}: {unexplained}"
    )


def blame_model(how: str, size: str, evidence: str) -> Attribution:
    """Makes the attribution for a correct strategy whose model is not the same function as its reference.

    Args:
        how: In what way it is not the same, such as `PORT`.
        size: The largest deviation of a loss.
        evidence: A clause that shows that the strategy is not the cause.
    """
    blame = f"your model is not the same function {how}"
    return Attribution(f"{blame}. The losses are off by {size}; {evidence}", blame)


def _blame_suspects(size: str, suspects: Sequence[Suspect], others: str, left: float) -> Attribution:
    names, remedies = (" and ".join(texts) for texts in zip(*((one.what, one.remedy) for one in suspects), strict=True))
    return blame_model(f"{_ON_SHARDS} {names}{others}", size, f"with these {remedies}, by {left:.0e}")


def _inseparable(short: Run, found: Suspect, suspects: Sequence[Suspect], rerun: Rerun) -> list[Suspect]:
    """Returns a suspect together with those that its remedy also switches off, i.e. whose own remedies then change no loss.

    Args:
        short: The first steps of the run.
        found: The suspect.
        suspects: All suspects of the run.
        rerun: Repeats steps of the run.
    """
    losses = rerun.steps(_without(short, found)).losses if len(suspects) > 1 else ()
    others = [one for one in suspects if one is not found and one.is_exact]
    silenced = [one for one in others if rerun.steps(_without(short, found, one)).losses == losses]
    return [one for one in suspects if one is found or one in silenced]


def _blame_mixing(run: Run, suspects: Sequence[Suspect], size: str, rerun: Rerun) -> Attribution | None:
    """Compares a run with its model on one device that takes the same shards of each batch one after the other.

    Args:
        run: The first steps of the run, without the suspects and in its most precise dtype.
        suspects: The suspects that were switched off.
        size: The largest deviation of the losses, as text.
        rerun: Repeats steps of the run.
    """
    layers, shards = run.workload.model.facts.habits.mixing, run.mesh.replicas * run.microbatches
    if not layers or shards == 1:
        return None
    mixing = f"the mixing of a batch's examples in {', '.join(layers)}"
    one = without_counterpart(run)
    one = dataclasses.replace(one, techniques=one.techniques.in_passes(shards))
    if run.described() == one.described():  # the run would be compared with itself
        parts = f"--accumulation-steps {shards}, which takes parts of a batch"
        return Attribution(f"not the same function: the losses are off by {size}, and {mixing} differs with {parts}")
    what = " and ".join([*(suspect.what for suspect in suspects), mixing])
    blame = functools.partial(blame_model, f"{_ON_SHARDS} {what}", size)
    switched = "".join(f"with these {each.remedy}, " for each in suspects)
    left = _apart(run, one, rerun)
    if left <= LOSS_BOUND[run.dtype]:
        same = f"{one.name} with --accumulation-steps {shards} mixes the same examples, and is {left:.0e} from it"
        return blame(f"{switched}{same}")
    if run.microbatches == 1:
        return None
    # A loss that gathers from all devices mixes their shards within each micro-batch, which no run on one device does.
    whole, one = (dataclasses.replace(each, techniques=each.techniques.in_passes(1)) for each in (run, one))
    left = _apart(whole, one, rerun)
    if left > LOSS_BOUND[run.dtype]:
        return None
    return blame(f"{switched}without --accumulation-steps, {run.name} is {left:.0e} from {one.name}")


def _not_switched(run: Run) -> str:
    """Returns a clause on what the forward pass does that cannot be switched off; "" if there is nothing of the kind."""
    habits = run.workload.model.facts.habits
    if not habits.is_steady:
        return "; called again with the same seed, weights and buffers, its forward pass gives other outputs"
    if written := run.workload.model.facts.written:
        return f"; its forward pass writes {count_layers(written, 'parameter')}, and each replica and micro-batch writes its own"
    if habits.restless:
        moved = count_layers(habits.restless, "running buffer")
        return f"; its forward pass updates {moved} in evaluation mode as well, which cannot be switched off here"
    if not habits.are_stilled:
        return f"; the random numbers of {count_layers(habits.randoms, 'layer')} cannot be switched off here"
    return ""


def find_other_step(run: Run, first: int, parity: Parity, rerun: Rerun) -> Attribution | None:
    """Finds a mistake that the wide bounds of two-byte numbers hide, by repeating steps without --precision.

    A few steps change a loss only a little, so a mistake in them, such as statistics of each replica's own shard, changes it even
    less.

    Args:
        run: The run of a user's model, in two bytes.
        first: The number of its first step.
        parity: The verdict on its curve, which passed.
        rerun: Repeats steps of the run.

    Returns:
        Why the strategy does not take the reference's steps; None if it does.
    """
    short = _shortened(run, first)
    short = dataclasses.replace(
        short, techniques=without("replaces_code", short.techniques)
    )  # compiling once is enough
    reference = reference_of(short)
    left = 0.0 if short.described() == reference.described() else _apart(short, reference, rerun)
    if left <= LOSS_BOUND[short.dtype]:
        return None
    reason = (
        f"without {_rounding(run)} its {_first(short.steps - first)} off by {left:.1e} in {short.dtype} "
        f"(allowed {LOSS_BOUND[short.dtype]:.0e})"
    )
    parity = dataclasses.replace(parity, max_relative_loss=left, reason=reason)
    return attribute(run, first, parity, rerun)


def _blame_port(short: Run, rerun: Rerun) -> str | None:
    """Returns a clause saying that a run agrees with its own model on one device; None if it does not, or has no torch model."""
    if short.workload.model.facts.counterpart is None:
        return None
    one = without_counterpart(short)
    left = 0.0 if short.described() == one.described() else _apart(short, one, rerun)
    if left > LOSS_BOUND[short.dtype]:
        return None
    return (
        f"the run's distance from {one.name} is {left:.1g}, and `samestep port` with the same --model and --data says which "
        f"layer differs from torch's"
    )


def _shortened(run: Run, first: int) -> Run:
    """Returns the first steps of a run, in its most precise dtype."""
    dtype = "float64" if "float64" in run.strategy.dtypes else run.dtype
    techniques = without("gradient_error", run.techniques)
    return dataclasses.replace(run, dtype=dtype, steps=min(run.steps, first + STEPS), techniques=techniques)


def _first(number: int) -> str:
    """Returns the first steps of a run with their verb: "first step is", "first 5 steps are"."""
    return "first step is" if number == 1 else f"first {number} steps are"


def _rounding(run: Run) -> str:
    """Returns the flags under which loss and gradients are rounded; "" if none is set."""
    usual = flags(run.techniques)
    asked = [name for name, value in flags_of("gradient_error", run.techniques).items() if value != usual[name].default]
    return " ".join(map(spell_flag, asked))


def _without(run: Run, *suspects: Suspect) -> Run:
    off = {name: value for suspect in suspects for name, value in suspect.off.items()}
    return dataclasses.replace(run, **off)  # type: ignore[arg-type]


def _left(run: Run, rerun: Rerun) -> float:
    """Returns how far a run is from its own model on one device, both repeated; a torch reference would add the port's share."""
    return _apart(run, without_counterpart(run), rerun)


def _apart(run: Run, other: Run, rerun: Rerun) -> float:
    """Returns how far a run is from another one, both repeated."""
    pairs = zip(rerun.steps(run).losses, rerun.steps(other).losses, strict=True)
    return max(deviation(loss, wanted, run.dtype) for loss, wanted in pairs)
