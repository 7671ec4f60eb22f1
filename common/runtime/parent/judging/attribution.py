"""Why the run of a user's model left its reference: measured, with one suspect at a time switched off.

A batch normalisation sees another batch on each replica, as a running buffer of the user's does, and random numbers are drawn by
each of them. None is a mistake of the strategy. So both the run and its reference are repeated without a suspect: if they agree
then, it was that alone. A model that mixes the examples of a batch cannot do without. So the run is held against the model on
one device that takes the same shards one after the other: if they agree, the strategy did what the model does on shards.
"""

import dataclasses
from collections.abc import Callable, Sequence

from samestep.common.batch_norm import num_passes, num_replicas
from samestep.common.judging.parity import LOSS_BOUND, Parity, deviation
from samestep.common.program import TrainState
from samestep.common.request import Launch
from samestep.common.runtime.parent.judging.reference import reference_of, without_twin
from samestep.common.strategy import Run
from samestep.common.workload.models.own import OwnSpec

STEPS = 5
"""How many steps are repeated: a suspect shows in the first, or in the second where only its statistics differ."""
_MOST_NAMED = 3
Repeat = Callable[[Run], tuple[list[float], TrainState]]
"""Takes the steps of a run in a scratch directory: its losses, and its state after the last of them."""


@dataclasses.dataclass(frozen=True)
class Suspect:
    """What makes a right strategy compute another function.

    Attributes:
        what: In words, with its layers counted.
        without: The same run without it.
        remedy: How it is switched off, with the flag.
        is_exact: Whether that switches nothing else off: a layer in evaluation may also draw no random numbers.
    """

    what: str
    without: Run
    remedy: str
    is_exact: bool = False


def attribute(run: Run, launch: Launch, parity: Parity, repeat: Repeat) -> str:
    """Says what is left of a deviation once each suspect is switched off.

    Args:
        run: What left its reference.
        launch: How it was started.
        parity: The verdict.
        repeat: Takes the steps of a run.

    Returns:
        The reason; the verdict's own if there is no suspect, or if the run continued another one.
    """
    if launch.start_from is not None:
        return parity.reason
    if run.techniques.precision is not None and _off(short := _shortened(run), repeat) <= LOSS_BOUND[short.dtype]:
        return f"{parity.reason}; without --precision its first {short.steps} steps are {parity.reference}'s"
    size = f"{parity.max_relative_loss:.1e}" if parity.max_relative_loss is not None else "not finite"
    said = f"not the same function: {size}"
    if (port := _blame_port(run, repeat)) is not None:
        return f"{said}, {port}"
    suspects, unexplained = find_suspects(run), f"{parity.reason}{_not_switched(run)}"
    for suspect in suspects:
        left = _left(suspect.without, repeat)
        if left <= LOSS_BOUND[suspect.without.dtype]:
            found = _inseparable(suspect, suspects, repeat)
            others = ", and nothing else" if len(found) < len(suspects) else ""
            return f"{said}, all of it {_explain(found, others, left)}"
    every = _shortened(run)
    for suspect in suspects:
        every = _merged(every, suspect.without)
    if len(suspects) > 1 and (left := _left(every, repeat)) <= LOSS_BOUND[every.dtype]:
        return f"{said}, all of it {_explain(suspects, '', left)}"
    if (mixed := _blame_mixing(every, suspects, repeat)) is not None:
        return f"{said}, {mixed}"
    if not suspects:
        return unexplained
    names = " and ".join(suspect.what for suspect in suspects)
    return f"{said}; without {names} {_left(every, repeat):.0e} is left: {unexplained}"


def _explain(suspects: Sequence[Suspect], others: str, left: float) -> str:
    names, remedies = (" and ".join(texts) for texts in zip(*((one.what, one.remedy) for one in suspects), strict=True))
    return f"{names}{others}; with these {remedies} {left:.0e}: the strategy is right"


def _inseparable(found: Suspect, suspects: Sequence[Suspect], repeat: Repeat) -> list[Suspect]:
    """A suspect, with those that its remedy switched off as well: without them, the run does not change any more."""
    losses = repeat(found.without)[0] if len(suspects) > 1 else []
    others = [one for one in suspects if one is not found and one.is_exact]
    silenced = [one for one in others if repeat(_merged(found.without, one.without))[0] == losses]
    return [one for one in suspects if one is found or one in silenced]


def _blame_mixing(run: Run, suspects: Sequence[Suspect], repeat: Repeat) -> str | None:
    """Holds a run against its model on one device that takes the same shards of each batch one after the other.

    Args:
        run: Without the suspects, in the best dtype there is.
        suspects: What was switched off.
        repeat: Takes the steps of a run.
    """
    model, shards = run.workload.model, num_replicas(run) * num_passes(run)
    if not isinstance(model, OwnSpec) or not model.described.habits.mixing or shards == 1:
        return None
    mixing = f"the mixing of a batch's examples in {', '.join(model.described.habits.mixing)}"
    one = without_twin(run)
    one = dataclasses.replace(one, techniques=dataclasses.replace(one.techniques, accumulation_steps=shards))
    if run.described() == one.described():  # which would agree with itself
        return f"and {mixing} is another one with --accumulation-steps {shards}, which takes parts of a batch"
    left = _apart(repeat(run)[0], repeat(one)[0], run.dtype)
    if left > LOSS_BOUND[run.dtype]:
        return None
    what = " and ".join([*(suspect.what for suspect in suspects), mixing])
    off = "".join(f"with these {one.remedy}, " for one in suspects)
    return (
        f"all of it {what}; {off}{one.name} with --accumulation-steps {shards} mixes the same examples, and is {left:.0e} from "
        f"it: the strategy is right"
    )


def _not_switched(run: Run) -> str:
    """What a forward pass does that nothing here can switch off, as a clause; "" if it does nothing of the kind."""
    if not isinstance(model := run.workload.model, OwnSpec):
        return ""
    habits = model.described.habits
    if not habits.is_steady:
        return "; called again with the same seed, weights and buffers, its forward pass gives other outputs"
    if habits.restless:
        moved = _count(habits.restless, "running buffer")
        return f"; its forward pass moves {moved} in evaluation as well: nothing here holds it still"
    if not habits.are_stilled:
        return f"; the random numbers of {_count(habits.randoms, 'layer')} cannot be switched off here"
    return ""


def find_other_step(run: Run, launch: Launch, first: int, parity: Parity, repeat: Repeat) -> str:
    """Finds what the bounds of two bytes are too wide to see in a run of a user's model: it has to be exact without --precision.

    A few steps move a loss by little, so a mistake in them moves it by less. So do statistics of each replica's own shard.

    Args:
        run: What was trained.
        launch: How it was started.
        first: The number of its first step.
        parity: The verdict on its curve, which passed.
        repeat: Takes the steps of a run.

    Returns:
        The reason why the strategy takes another step; "" if it does not, or if nothing was computed in two bytes.
    """
    if run.techniques.precision is None or not isinstance(run.workload.model, OwnSpec):
        return ""
    short = _shortened(run, first)
    short = dataclasses.replace(
        short, techniques=dataclasses.replace(short.techniques, compile=False)
    )  # once is enough
    left = 0.0 if short.described() == reference_of(short).described() else _off(short, repeat)
    if left <= LOSS_BOUND[short.dtype]:
        return ""
    reason = (
        f"without --precision its first {short.steps - first} steps are off by {left:.1e} in {short.dtype} "
        f"(allowed {LOSS_BOUND[short.dtype]:.0e})"
    )
    return attribute(run, launch, dataclasses.replace(parity, max_relative_loss=left, reason=reason), repeat)


def _blame_port(run: Run, repeat: Repeat) -> str | None:
    """Holds a TensorFlow model against itself on one device, where its reference is the torch model beside it."""
    model = run.workload.model
    if not isinstance(model, OwnSpec) or model.twin is None:
        return None
    short = _shortened(run)
    one = without_twin(short)
    is_itself = short.described() == one.described()
    left = 0.0 if is_itself else _apart(repeat(short)[0], repeat(one)[0], short.dtype)
    if left > LOSS_BOUND[short.dtype]:
        return None
    return (
        f"all of it the port: from {one.name} it is {left:.1g}: the strategy is right, and `samestep port` with the same "
        f"--model and --data says which layer differs from torch's"
    )


def _shortened(run: Run, first: int = 0) -> Run:
    """The first steps of a run, in the best dtype there is."""
    dtype = "float64" if "float64" in run.strategy.dtypes else run.dtype
    techniques = dataclasses.replace(run.techniques, precision=None)
    return dataclasses.replace(run, dtype=dtype, steps=min(run.steps, first + STEPS), techniques=techniques)


def find_suspects(run: Run) -> list[Suspect]:
    """What the run's model has that depends on how a batch is split; both sides are repeated in the best dtype there is."""
    model = run.workload.model
    if not isinstance(model, OwnSpec):
        return []
    short, described, found, held = _shortened(run), model.described, [], []
    habits = described.habits
    if habits.randoms and habits.are_stilled and run.dropout is not False:
        what = f"the random numbers of {_count(habits.randoms, 'layer')}"
        without = dataclasses.replace(short, dropout=False)
        found.append(Suspect(what, without, "switched off (--no-dropout)", is_exact=True))
    if described.batch_norms and run.batch_norm == "local":
        held.append(f"the local statistics of {_count(described.batch_norms, 'BatchNorm layer')}")
    if habits.running and run.batch_norm != "frozen":
        held.append(f"the moves of {_count(habits.running, 'running buffer')}")
    if held:
        without = dataclasses.replace(short, batch_norm="frozen")
        found.append(Suspect(" and ".join(held), without, "frozen (--batch-norm frozen)"))
    return found


def _count(names: tuple[str, ...], noun: str) -> str:
    named = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''} ({named})"


def _merged(run: Run, other: Run) -> Run:
    changed = {"batch_norm": "frozen"} if other.batch_norm == "frozen" else {}
    changed |= {"dropout": False} if other.dropout is False else {}
    return dataclasses.replace(run, dtype=other.dtype, steps=other.steps, **changed)


def _left(run: Run, repeat: Repeat) -> float:
    """How far a run is from its own model on one device, both taken anew; from torch's model beside it, the port is as well."""
    return _apart(repeat(run)[0], repeat(without_twin(run))[0], run.dtype)


def _off(run: Run, repeat: Repeat) -> float:
    """How far a run is from its reference, both taken anew."""
    return _apart(repeat(run)[0], repeat(reference_of(run))[0], run.dtype)


def _apart(losses: list[float], wanted: list[float], dtype: str) -> float:
    return max(deviation(loss, other, dtype) for loss, other in zip(losses, wanted, strict=True))
