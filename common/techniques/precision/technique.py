"""Mixed precision as a technique."""

from collections.abc import Iterator

from samestep.common.errors import ConfigError
from samestep.common.features.used import say_growth
from samestep.common.frameworks import conventions
from samestep.common.ledger import Send
from samestep.common.request import DTYPES
from samestep.common.strategy import Run
from samestep.common.techniques.precision.bound import find_flaw, gradient_error
from samestep.common.techniques.precision.flag import PrecisionFlags
from samestep.common.techniques.technique import Technique
from samestep.common.workload.models.dtypes import Dtypes


def check_precision(run: Run) -> None:
    """Refuses mixed precision where parameters are not in float32, where it cannot be judged, and fp16 without a scaler.

    Args:
        run: What is to be trained.

    Raises:
        ConfigError: It is one of them.
    """
    precision = run.techniques.precision
    if run.weights is not None:
        raise ConfigError(
            f"--weights {run.weights} keeps parameters in two bytes, --precision {precision} in float32; leave out one of them."
        )
    if run.dtype != "float32":
        raise ConfigError(f"--precision {precision} has parameters in float32; leave out --dtype {run.dtype}.")
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


def check_variables(source: str, dtypes: Dtypes) -> None:
    """Refuses variables in two bytes where nothing can cast them.

    Args:
        source: Where the model is declared, for messages.
        dtypes: The dtypes of its variables.

    Raises:
        ConfigError: One has two bytes.
    """
    for name, dtype in dtypes.items():
        if dtype in ("bfloat16", "float16"):
            raise ConfigError(
                f"--model {source}: the variable {name} is {dtype} whatever --dtype says; make it without dtype=, and give "
                f"--precision bf16 to compute in two bytes."
            )


def skip_agreement(run: Run) -> Iterator[Send]:
    """Predicts the number by which ranks agree whether to take a step in fp16: that of those whose gradients overflowed."""
    if run.techniques.precision == "fp16" and run.num_devices > 1:
        yield Send("update", "all_reduce", run.mesh.only_axis, run.num_devices, DTYPES["float32"])


def emulation(run: Run) -> str:
    """Returns what CPU cores compute in the place of units for two bytes: the same numbers, at another speed."""
    return f"--precision {run.techniques.precision} on CPU cores, whose speed is not a GPU's"


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
