"""Steps that ranks take alone, as a technique."""

from collections.abc import Iterable, Iterator, Sequence

from samestep.common.errors import ConfigError, count
from samestep.common.features.used import buffers_of, exchange_within
from samestep.common.flags import spell_flag
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.local_steps.flag import LocalStepsFlags
from samestep.common.techniques.local_steps.ranks import find_flaw
from samestep.common.techniques.local_steps.statement import outer_step
from samestep.common.techniques.technique import Periods, Technique
from samestep.common.workload.models.spec import Param


def refuse(run: Run) -> None:
    """Refuses runs whose ranks would have to exchange within a period, and runs with a single rank.

    Raises:
        ConfigError: The run is refused, or an option of the outer step was given without periods.
    """
    steps = run.techniques.local_steps
    if steps is None:
        given = {name: getattr(run.techniques, name) for name in ("outer_rate", "outer_momentum")}
        name = next(name for name, value in given.items() if value != getattr(Techniques(), name))
        raise ConfigError(
            f"{spell_flag(name)} {given[name]:g} applies to the step after each period; add --local-steps, or leave it out."
        )
    for is_asked, why in _conflicts(run):
        if is_asked:
            raise ConfigError(f"--local-steps {steps} {why}")


def _conflicts(run: Run) -> Iterator[tuple[bool, str]]:
    """Yields what ranks cannot do alone: whether the run has it, and the reason in words."""
    from samestep.common.workload.reductions import varies  # here: few runs take steps alone

    model = run.workload.model
    yield run.num_devices == 1, "needs several ranks, and there is one; add --devices 2."
    yield (
        run.arithmetic == "fp16",
        "lets ranks take steps alone, and fp16 makes them agree on the scale of the loss in every step; use bf16.",
    )
    within = exchange_within(run)
    yield (
        within is not None,
        f"lets ranks take steps alone, and {within and within.flag} makes them exchange within a step; leave out one of them.",
    )
    yield (
        bool(model.facts.buffers or buffers_of(model)),
        f"averages weights, and {run.workload.name} also keeps buffers, which would differ between ranks; choose a "
        "model without buffers.",
    )
    yield (
        varies(model),
        f"gives all ranks the same weight, and the loss of {run.workload.name} is divided by a number that differs between "
        "ranks; leave out --local-steps, or choose another workload.",
    )


def refuse_launch(run: Run) -> None:
    """Refuses a run whose last period is cut short.

    Raises:
        ConfigError: The number of steps is not a multiple of the steps of a period.
    """
    steps = run.techniques.local_steps or 1
    if steps > run.steps:
        raise ConfigError(
            f"--local-steps {steps} is more than the run's {count(run.steps, 'step')}; give at most {run.steps}, or --steps "
            f"{steps}."
        )
    if run.steps % steps:
        below = run.steps // steps * steps
        raise ConfigError(
            f"--local-steps {steps} does not divide the run's {run.steps} steps, so its ranks would end with different weights; "
            f"use --steps {below} or {below + steps}."
        )


def weights_sends(run: Run, params: Sequence[Param]) -> Iterator[Send]:
    """Yields the send of a period: the weights in one all-reduce, instead of equally large gradients in every step.

    Args:
        run: What is trained.
        params: The parameters that are trained.
    """
    size = sum(param.size for param in params) * run.item_bytes
    yield Send("update", "all_reduce", run.mesh.only_axis, run.num_devices, size)


def kept_bytes(run: Run, params: Iterable[Param]) -> int:
    """Returns the bytes that a device keeps from one period to the next: the shared weights, and the momentum if there is one.

    Args:
        run: What is trained.
        params: The parameters that are trained.
    """
    copies = run.techniques.keeps_shared + (run.techniques.outer_momentum > 0)
    return copies * sum(param.size for param in params) * run.item_bytes


LOCAL_STEPS = Technique(
    flags=LocalStepsFlags,
    refuse=refuse,
    refuse_launch=refuse_launch,
    gradient_sends=weights_sends,
    find_flaw=find_flaw,
    periods=Periods(statement=outer_step, kept_bytes=kept_bytes),
    in_textbooks=("activations",),
)
