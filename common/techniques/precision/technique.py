"""Mixed precision as a technique."""

from collections.abc import Iterator

from samestep.common.errors import ConfigError
from samestep.common.features.used import say_growth
from samestep.common.frameworks import conventions
from samestep.common.ledger import Send
from samestep.common.request import DTYPES
from samestep.common.strategy import Run
from samestep.common.techniques.precision.bound import find_flaw, gradient_error
from samestep.common.techniques.precision.flag import TWO_BYTES, PrecisionFlags
from samestep.common.techniques.technique import Technique
from samestep.common.workload.models.dtypes import Dtypes

KEEP = "--keep-dtypes"


def check_precision(run: Run) -> None:
    """Refuses mixed precision if parameters are not in float32 or it cannot be judged, and fp16 without a loss scaler.

    Args:
        run: What is to be trained.

    Raises:
        ConfigError: The run is refused.
    """
    precision = run.techniques.precision
    asked = KEEP if run.techniques.keep_dtypes else f"--precision {precision}"
    if run.weights is not None:
        raise ConfigError(
            f"--weights {run.weights} keeps parameters in two bytes, {asked} in float32; leave out one of them."
        )
    if run.dtype != "float32":
        raise ConfigError(f"{asked} has parameters in float32; leave out --dtype {run.dtype}.")
    if run.techniques.keep_dtypes:
        _check_kept(run)
        return
    if precision == "fp16" and not run.strategy.scales_loss:
        raise ConfigError(
            f"{run.name} does not take --precision fp16: its gradients would vanish without a loss scaler, which it does not "
            "have; give --precision bf16."
        )
    if growing := say_growth(run):
        raise ConfigError(
            f"--precision {precision} rounds {growing}: errors would grow beyond what can be judged; give a larger --batch-size, "
            "or fewer layers."
        )
    if why := run.workload.model.facts.rounded.refused:
        raise ConfigError(f"{run.workload.name} does not take --precision {precision}: {why}; leave it out.")
    if not run.workload.model.facts.rounded.roundings:
        why = conventions(run.framework).why_wide
        raise ConfigError(
            f"{run.workload.name} computes nothing in two bytes: {why}; leave out --precision {precision}."
        )


def _check_kept(run: Run) -> None:
    """Refuses to keep dtypes if the user's file gives none, if they need a loss scaler, or if the model fails in them."""
    dtypes, kept, name = run.workload.model.facts.dtypes, run.workload.model.facts.kept, run.workload.name
    if run.techniques.precision is not None:
        raise ConfigError(
            f"{KEEP} and --precision {run.techniques.precision} both choose a type; leave out one of them."
        )
    if halves := [held for held, dtype in dtypes.items() if dtype == "float16"]:
        raise ConfigError(
            f"{KEEP}: {halves[0]} of {name} is float16, whose gradients vanish without a loss scaler; make it bfloat16."
        )
    if TWO_BYTES not in dtypes.values():
        raise ConfigError(f"{KEEP}: no parameter of {name} is {TWO_BYTES} in its file; leave it out.")
    facts = run.workload.model.facts
    moved = [
        *facts.habits.running,
        *facts.habits.restless,
        *(path for paths in facts.featured.values() for path in paths),
    ]
    for path in (each.replace("/", ".") for each in moved):
        lost = [
            held for held in dtypes if held.replace(".", "/") in facts.buffers and f"{held}.".startswith(f"{path}.")
        ]
        if lost:
            raise ConfigError(
                f"{KEEP}: a forward pass moves {lost[0]} of {name}, which a cast would lose; make it float32."
            )
    if why := kept.refused:
        raise ConfigError(f"{name} does not take {KEEP}: {why}; leave it out.")


def check_variables(source: str, dtypes: Dtypes) -> None:
    """Refuses variables in two bytes, which nothing can cast.

    Args:
        source: Where the model is declared, for messages.
        dtypes: The dtypes of its variables, and of what its layers compute.

    Raises:
        ConfigError: A variable has two bytes.
    """
    for name, dtype in dtypes.items():
        if dtype in ("bfloat16", "float16"):
            raise ConfigError(
                f"--model {source}: {name} is {dtype} whatever --dtype says; make it without dtype=, and give --precision bf16 "
                f"to compute in two bytes."
            )


def skip_agreement(run: Run) -> Iterator[Send]:
    """Predicts the exchange by which ranks agree to take a step in fp16: they sum how many of them overflowed."""
    if run.techniques.precision == "fp16" and run.num_devices > 1:
        yield Send("update", "all_reduce", run.mesh.only_axis, run.num_devices, DTYPES["float32"])


def emulation(run: Run) -> str:
    """Returns what CPU cores compute in place of hardware for two bytes: the same numbers, at another speed."""
    asked = KEEP if run.techniques.keep_dtypes else f"--precision {run.techniques.precision}"
    return f"{asked} on CPU cores, whose speed is not a GPU's"


PRECISION = Technique(
    flags=PrecisionFlags,
    refuse=check_precision,
    refuse_variables=check_variables,
    gradient_error=gradient_error,
    find_flaw=lambda state: find_flaw(state.params),
    sends_before_update=skip_agreement,
    emulation_on_cpus=emulation,
    in_textbooks=("state",),
)
