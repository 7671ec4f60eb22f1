"""What requests of mixed precision are refused, and those of weights in two bytes, which are only predicted."""

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.strategy import Run
from samestep.common.workload.models.own import OwnSpec


def check_weights(config: RunConfig, weights: str | None) -> None:
    """Refuses what does not go together with weights in two bytes.

    Args:
        config: The request.
        weights: Of TWO_BYTES, or None.

    Raises:
        ConfigError: The master weights would not be in float32, or the parameters would be in two types.
    """
    if weights is not None and config.dtype != "float32":
        raise ConfigError(f"--weights {weights} has master weights in float32; leave out --dtype {config.dtype}.")
    if weights is not None and config.techniques.precision is not None:
        raise ConfigError(
            f"--weights {weights} keeps parameters in two bytes, --precision {config.techniques.precision} in float32; "
            "leave out one of them."
        )


def check_precision(run: Run) -> None:
    """Refuses mixed precision where parameters are not in float32, where it cannot be judged, and fp16 without a scaler.

    Args:
        run: What is to be trained.

    Raises:
        ConfigError: It is one of them.
    """
    precision = run.techniques.precision
    if precision is None:
        return
    if run.dtype != "float32":
        raise ConfigError(f"--precision {precision} has parameters in float32; leave out --dtype {run.dtype}.")
    if precision == "fp16" and not run.strategy.scales_loss:
        raise ConfigError(
            f"{run.name} does not take --precision fp16: its gradients would vanish without a loss scaler, which it does not "
            "have; give --precision bf16."
        )
    if not isinstance(model := run.workload.model, OwnSpec):
        return
    if why := model.described.two_bytes.refused:
        raise ConfigError(f"{run.workload.name} does not take --precision {precision}: {why}; leave it out.")
    if not model.described.two_bytes.roundings:
        what = "torch.autocast finds no products in it" if run.framework == "torch" else "only layers of Keras do"
        raise ConfigError(
            f"{run.workload.name} computes nothing in two bytes: {what}; leave out --precision {precision}."
        )
