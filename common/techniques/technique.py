"""What a technique consists of: the hooks that its own folder fills in, and over which everything else loops."""

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
    """What an exchange of gradients computes where it is not their sum; it depends on how the batch is split over devices.

    Attributes:
        statement: What it computes, in NumPy: (run, the gradients of each rank, what each kept of the last step) -> their sum
            as every rank has it, and what each keeps.
        kept_bytes: What a device keeps from one step to the next for some parameters.
        first_step: The first step that has it, counted from 0; those before exchange plain sums.
    """

    statement: "Statement"
    kept_bytes: Callable[[Run, Iterable[Param]], int]
    first_step: Callable[[Techniques], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Periods:
    """Periods of steps that ranks take alone, with weights and optimizer state of their own; each ends with a step of all.

    Attributes:
        statement: The step of all ranks, in NumPy: (techniques, the weights that the period began with, the running sum of such
            steps, the weights of each rank) -> the weights that the next period begins with, and the sum.
        kept_bytes: What a device keeps from one period to the next for some parameters.
    """

    statement: "OuterStep"
    kept_bytes: Callable[[Run, Iterable[Param]], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Technique:
    """One way to take a step differently, under any strategy that takes it.

    Attributes:
        flags: The dataclass of its flags; it is used where one of them is not at its default.
        refuse: Raises a ConfigError for a run that cannot have it, whatever the strategy.
        refuse_variables: Raises a ConfigError for variables of a user's model whose dtype is its to choose: (where the model is
            declared, their dtypes).
        refuse_launch: Raises a ConfigError for what only a launch cannot have; the diagnosis repeats a run up to any step.
        note: What the user should know of a run before it starts, in a line; "" if there is nothing.
        fill_in: Fills in the flags that depend on the rest of the run.
        change_optimizer: The optimizer of the run with what the technique changes of it: (one of ours, techniques of the run) ->
            optimizer.
        exchange: What its exchange of gradients computes, if that is not their sum.
        periods: How ranks come together that take steps alone, if it has them do so.
        gradient_sends: The sends by which the gradients of some parameters, which go together, are summed over all devices, if
            they are its own.
        transform: What it makes of the gradient of the whole batch, in NumPy, if it changes that: (gradients, techniques of the
            run) -> gradients.
        gradient_error: How far its rounding takes loss and gradient of a step, relative to their size, if it rounds them.
        find_flaw: What the state after a run shows to be wrong; "" if nothing.
        sends_before_update: What it sends beside gradients, once a step.
        emulation_on_cpus: What CPU cores compute in the place of the hardware it is meant for; None if it is meant for any.
        computed_twice: The segments whose forward pass is computed once more in the backward pass.
        replaces_code: Whether a compiler writes the code of a pass anew, and decides what that keeps for the backward pass.
        in_textbooks: The quantities of a `Formula` that the textbooks still say right of it; None for all.
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
