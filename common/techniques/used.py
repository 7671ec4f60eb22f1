"""The techniques that a run uses, for everything that loops over them."""

import dataclasses
import functools
from collections.abc import Collection
from typing import Literal

from samestep.common.flags import FieldValues, Scalar, flags, spell_flag, spell_flags
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.clip_norm.technique import CLIP_NORM
from samestep.common.techniques.compile.technique import COMPILE
from samestep.common.techniques.compress.technique import COMPRESS
from samestep.common.techniques.decayed.technique import DECAYED
from samestep.common.techniques.fixed_order.technique import FIXED_ORDER
from samestep.common.techniques.local_steps.technique import LOCAL_STEPS
from samestep.common.techniques.precision.technique import PRECISION
from samestep.common.techniques.recompute.technique import RECOMPUTE
from samestep.common.techniques.schedule.technique import SCHEDULE
from samestep.common.techniques.technique import GradientExchange, Periods, Technique
from samestep.common.techniques.vector_rate.technique import VECTOR_RATE
from samestep.common.workload.models.dtypes import Dtypes
from samestep.common.workload.models.spec import Param, Segment

Hook = Literal["exchange", "periods", "transform", "gradient_error", "replaces_code"]
"""Hooks by which strategies refuse techniques, or by which a run is repeated without some of its techniques."""
TECHNIQUES: tuple[Technique, ...] = (
    RECOMPUTE,
    COMPRESS,
    LOCAL_STEPS,
    FIXED_ORDER,
    PRECISION,
    SCHEDULE,
    DECAYED,
    VECTOR_RATE,
    CLIP_NORM,
    COMPILE,
)
"""All techniques, in the order in which they refuse a run."""


@functools.cache
def used(techniques: Techniques) -> tuple[Technique, ...]:
    """Returns the techniques that have a flag that is not at its default."""
    return tuple(
        each
        for each in TECHNIQUES
        if any(getattr(techniques, name) != field.default for name, field in flags(each.flags).items())
    )


def refuse_variables(source: str, dtypes: Dtypes) -> None:
    """Refuses variables of a user's model whose dtype a technique should choose.

    Args:
        source: Where the model is declared, for messages.
        dtypes: The dtypes that its variables have in every run.

    Raises:
        ConfigError: There is such a variable.
    """
    for each in TECHNIQUES:
        each.refuse_variables(source, dtypes)


def exchange_of(techniques: Techniques) -> GradientExchange | None:
    """Returns the exchange of gradients; None if it is their plain sum."""
    return next((each.exchange for each in used(techniques) if each.exchange is not None), None)


def periods_of(techniques: Techniques) -> Periods | None:
    """Returns the periods of local steps; None if ranks take none."""
    return next((each.periods for each in used(techniques) if each.periods is not None), None)


STEPS_ALONE: FieldValues = {"local_steps": 500, "outer_rate": 0.7, "outer_momentum": 0.9}
"""The settings of local steps in Douillard et al., arXiv 2311.08105, sections 2 and 3 (DiLoCo)."""


def counts_devices(techniques: Techniques) -> str:
    """Returns the flag of a technique whose step depends on the number of devices; "" if none does."""
    own = (next(iter(flags(each.flags))) for each in used(techniques) if each.exchange or each.periods)
    return next(map(spell_flag, own), "")


def kept_bytes(run: Run, params: Collection[Param]) -> int:
    """Returns the bytes that techniques keep on a device from one exchange to the next.

    Args:
        run: What is trained.
        params: The parameters that are trained.
    """
    own = (exchange_of(run.techniques), periods_of(run.techniques))
    return sum(each.kept_bytes(run, params) for each in own if each is not None)


def sums_gradients(techniques: Techniques) -> Technique | None:
    """Returns the technique that sums the gradients by its own sends; None if none does."""
    return next((each for each in used(techniques) if each.gradient_sends is not None), None)


def gradient_error(run: Run) -> float | None:
    """Returns how far a technique's rounding may move a step's loss and gradient, relative to their size; None if none does."""
    found = [each.gradient_error(run) for each in used(run.techniques) if each.gradient_error is not None]
    return max(found, default=None)


def spell_exchanges(techniques: Techniques) -> list[str]:
    """Returns the flags of the techniques that sum the gradients by their own sends, as in `--compress int8`."""
    own = [next(iter(flags(each.flags))) for each in used(techniques) if each.gradient_sends is not None]
    return [" ".join(spell_flags(techniques, set(flags(techniques)) - {name})) for name in own]


def refusal(hook: Hook, why: str) -> dict[str, str]:
    """Returns the refusal of every technique that fills in a hook, for a strategy's `refuses`: field of a flag -> why.

    Args:
        hook: The hook that the strategy cannot support.
        why: Why not, as a clause.
    """
    found: dict[str, str] = {}
    for each in (each for each in TECHNIQUES if getattr(each, hook)):
        first, *options = flags(each.flags)
        # For exchanges and periods, the flags of details are refused before the flag that asks for them.
        found |= dict.fromkeys((*options, first) if each.exchange or each.periods else (first, *options), why)
    return found


def for_other_hardware() -> dict[str, tuple[Scalar, ...]]:
    """Returns the flags of the techniques that are meant for other hardware than CPU cores, each with its choices."""
    meant = [flags(each.flags) for each in TECHNIQUES if each.emulation_on_cpus is not None]
    return {name: field.metadata["choices"] for fields in meant for name, field in list(fields.items())[:1]}


def first_steady_step(techniques: Techniques) -> int:
    """Returns the first step that exchanges gradients as all later ones do, counted from 0; earlier steps exchange plain sums."""
    exchange = exchange_of(techniques)
    return 0 if exchange is None else exchange.first_step(techniques)


def computed_twice(run: Run) -> tuple[Segment, ...]:
    """Returns the segments whose forward pass is recomputed in the backward pass."""
    return tuple(segment for each in used(run.techniques) for segment in each.computed_twice(run))


def rounding_asked(techniques: Techniques) -> dict[str, Scalar]:
    """Returns the flags of all techniques that round loss and gradients, by name, whether they are used or not."""
    return {name: getattr(techniques, name) for each in TECHNIQUES if each.gradient_error for name in flags(each.flags)}


def replaces_code(techniques: Techniques) -> bool:
    """Returns whether a compiler generates the code of a pass."""
    return any(each.replaces_code for each in used(techniques))


def flags_of(hook: Hook, techniques: Techniques) -> FieldValues:
    """Returns the flags of the techniques that a run uses and that fill in a hook, by name; none if none does.

    Args:
        hook: The hook.
        techniques: The techniques of the run.
    """
    own = [each for each in used(techniques) if getattr(each, hook)]
    return {name: getattr(techniques, name) for each in own for name in flags(each.flags)}


def without(hook: Hook, techniques: Techniques) -> Techniques:
    """Returns the techniques without those that fill in a hook.

    Args:
        hook: The hook.
        techniques: The techniques of the run.
    """
    return dataclasses.replace(techniques, **{name: getattr(Techniques(), name) for name in flags_of(hook, techniques)})
