"""Why the run of a user's model left its reference: measured, with one suspect at a time switched off.

A batch normalisation sees another batch on each replica, and random numbers are drawn by each of them. Neither is a mistake
of the strategy. So both the run and its reference are repeated without a suspect: if they agree then, it was that alone.
"""

import dataclasses
from collections.abc import Callable

from samestep.common.evidence.parity import LOSS_BOUND, Parity, deviation
from samestep.common.program import TrainState
from samestep.common.request import Launch
from samestep.common.runtime.parent.reference import reference_of, without_twin
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
    """

    what: str
    without: Run
    remedy: str


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
    suspects = find_suspects(run)
    if launch.start_from is not None:
        return parity.reason
    if run.techniques.precision is not None and _off(short := _shortened(run), repeat) <= LOSS_BOUND[short.dtype]:
        return f"{parity.reason}; without --precision its first {short.steps} steps are {parity.reference}'s"
    size = f"{parity.max_relative_loss:.1e}" if parity.max_relative_loss is not None else "not finite"
    said = f"not the same function: {size}"
    if (port := _blame_port(run, repeat)) is not None:
        return f"{said}, {port}"
    if not suspects:
        return parity.reason
    for suspect in suspects:
        left = _left(suspect.without, repeat)
        if left <= LOSS_BOUND[suspect.without.dtype]:
            others = "" if len(suspects) == 1 else ", and nothing else"
            return f"{said}, all of it {suspect.what}{others}; with these {suspect.remedy} {left:.0e}: the strategy is right"
    every = run
    for suspect in suspects:
        every = _merged(every, suspect.without)
    names = " and ".join(suspect.what for suspect in suspects)
    left = _left(every, repeat)
    if len(suspects) > 1 and left <= LOSS_BOUND[every.dtype]:
        remedies = " and ".join(suspect.remedy for suspect in suspects)
        return f"{said}, all of it {names}; with these {remedies} {left:.0e}: the strategy is right"
    return f"{said}; without {names} {left:.0e} is left: {parity.reason}"


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
    short, described, found = _shortened(run), model.described, []
    if described.batch_norms and run.batch_norm == "local":
        what = f"the local statistics of {_count(described.batch_norms, 'BatchNorm layer')}"
        found.append(Suspect(what, dataclasses.replace(short, batch_norm="frozen"), "frozen (--batch-norm frozen)"))
    if described.randoms and run.dropout is not False:
        what = f"the random numbers of {_count(described.randoms, 'layer')}"
        found.append(Suspect(what, dataclasses.replace(short, dropout=False), "switched off (--no-dropout)"))
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
