"""A technique: the hooks that its folder fills in, and over which everything else loops."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.workload.models.dtypes import Dtypes
from samestep.common.workload.models.spec import Param, Segment
from samestep.common.workload.optimizers.spec import OptimizerSpec

if TYPE_CHECKING:
    from samestep.common.program import Arrays, TrainState

    OuterStep = Callable[[Techniques, Arrays, Arrays, Sequence[Arrays]], tuple[Arrays, Arrays]]
    Statement = Callable[[Run, Sequence[Arrays], Sequence[Arrays]], tuple[Arrays, tuple[Arrays, ...]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientExchange:
    """An exchange of gradients that is not their sum, and depends on how the batch is split over devices.

    Attributes:
        statement: The exchange in NumPy: (run, the gradients of each rank, what each kept of the last step) -> their sum as
            every rank gets it, and what each keeps.
        kept_bytes: The bytes that a device keeps from one step to the next for some parameters.
        first_step: The first step with this exchange, counted from 0; earlier steps exchange plain sums.
    """

    statement: "Statement"
    kept_bytes: Callable[[Run, Iterable[Param]], int]
    first_step: Callable[[Techniques], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Periods:
    """Periods of local steps, which ranks take with their own weights and optimizer state; each ends with an outer step.

    Attributes:
        statement: The outer step in NumPy: (techniques, the weights with which the period began, the outer momentum, the
            weights of each rank) -> the weights with which the next period begins, and the momentum.
        kept_bytes: The bytes that a device keeps from one period to the next for some parameters.
    """

    statement: "OuterStep"
    kept_bytes: Callable[[Run, Iterable[Param]], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Technique:
    """One way to take a step differently, under any strategy that supports it.

    Attributes:
        flags: The dataclass of its flags; the technique is used if one of them is not at its default.
        refuse: Raises a ConfigError for a run that cannot use it under any strategy.
        refuse_variables: Raises a ConfigError for variables of a user's model whose dtype the technique should choose: (where
            the model is declared, their dtypes).
        refuse_launch: Raises a ConfigError for runs that cannot be launched but can be repeated by the diagnosis, which stops
            at any step.
        note: Returns what the user should know about a run before it starts, in a line; "" if there is nothing.
        fill_in: Fills in the flags that depend on the rest of the run.
        change_optimizer: Returns the optimizer with the technique's changes: (one of ours, techniques of the run) -> optimizer.
        exchange: Its exchange of gradients, if that is not their sum.
        periods: Its periods of local steps, if it has any.
        gradient_sends: The sends that sum the gradients of some parameters over all devices, if the technique has its own.
        transform: Its change of the gradient of the whole batch, in NumPy, if it has one: (gradients, techniques of the
            run) -> gradients.
        gradient_error: How far its rounding may move loss and gradient of a step, relative to their size, if it rounds them.
        find_flaw: Returns what is wrong with the state after a run; "" if nothing is.
        sends_before_update: The sends in addition to gradients, once a step.
        emulation_on_cpus: Says what CPU cores compute in place of the hardware for which it is meant; None if it is meant for
            any hardware.
        computed_twice: The segments whose forward pass is recomputed in the backward pass.
        replaces_code: Whether a compiler generates the code of a pass, and decides what it saves for the backward pass.
        in_textbooks: The quantities of a `Formula` that remain correct with it; None for all.
    """

    flags: type
    refuse: Callable[[Run], None] = lambda run: None
    refuse_variables: Callable[[str, Dtypes], None] = lambda source, dtypes: None
    refuse_launch: Callable[[Run], None] = lambda run: None
    note: Callable[[Run], str] = lambda run: ""
    fill_in: Callable[[Run], Techniques] = lambda run: run.techniques
    change_optimizer: Callable[[OptimizerSpec, Techniques], OptimizerSpec] = lambda optimizer, techniques: optimizer
    exchange: GradientExchange | None = None
    periods: Periods | None = None
    gradient_sends: Callable[[Run, Sequence[Param]], Iterable[Send]] | None = None
    transform: "Callable[[Arrays, Techniques], Arrays] | None" = None
    gradient_error: Callable[[Run], float] | None = None
    find_flaw: "Callable[[TrainState], str]" = lambda state: ""
    sends_before_update: Callable[[Run], Iterable[Send]] = lambda run: ()
    emulation_on_cpus: Callable[[Run], str] | None = None
    computed_twice: Callable[[Run], Sequence[Segment]] = lambda run: ()
    replaces_code: bool = False
    in_textbooks: tuple[str, ...] | None = None
