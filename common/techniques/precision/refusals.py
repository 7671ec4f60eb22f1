"""What requests of mixed precision are refused."""

from samestep.common.batch_norm import MOST_GROWTH, error_growth, has_batch_norm, numbers_of_statistics
from samestep.common.errors import ConfigError
from samestep.common.frameworks import conventions
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import batch_norms


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
    if has_batch_norm(run) and error_growth(run) > MOST_GROWTH:
        raise ConfigError(
            f"--precision {precision} rounds what {len(batch_norms(run.workload.model))} normalisations one behind the other "
            f"divide by the deviation of {numbers_of_statistics(run)} numbers: errors would grow beyond what can be judged; "
            "give a larger --batch-size, or fewer layers."
        )
    if why := run.workload.model.facts.rounded.refused:
        raise ConfigError(f"{run.workload.name} does not take --precision {precision}: {why}; leave it out.")
    if not run.workload.model.facts.rounded.roundings:
        why = conventions(run.framework).why_wide
        raise ConfigError(
            f"{run.workload.name} computes nothing in two bytes: {why}; leave out --precision {precision}."
        )
