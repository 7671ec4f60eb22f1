"""What the rows that sum gradients refuse before anything starts. Imports no framework."""

from samestep.common.errors import ConfigError
from samestep.common.flags import spell_flag
from samestep.common.strategy import Run
from samestep.common.techniques.used import rounding_flags, spell_exchanges, transform_flags
from samestep.torch_impl.rows.needs import refuse_lonely
from samestep.torch_impl.rows.options import C10dOptions, DdpOptions


def check_ring(run: Run[C10dOptions]) -> None:
    """Refuses a ring where a technique exchanges gradients in another way.

    Raises:
        ConfigError: Both were asked for.
    """
    if run.options.ring and (own := spell_exchanges(run.techniques)):
        raise ConfigError(f"{own[0]} exchanges in its own way; leave out --ring.")


def check_shards(run: Run) -> None:
    """Refuses a fixed order where ranks have parts of a gradient that are added up in other orders, and a lonely exchange.

    Raises:
        ConfigError: It is asked for with the norm of a gradient, with gradients in two bytes, or with replicas of shards; or
            attentions are to exchange keys and values along no axis.
    """
    refuse_lonely(run)
    found = [spell_flag(name) for name in (*transform_flags(run.techniques), *rounding_flags(run.techniques))]
    found += [f"the axis {name}" for name in run.mesh.replica_axes]
    if run.techniques.fixed_order is not None and found:
        raise ConfigError(
            f"{run.name} has --fixed-order only where each number of a gradient is added up once, in float32 or float64; leave "
            f"out {found[0]}, or choose torch:ddp or torch:zero1."
        )


def check_buckets(run: Run[DdpOptions]) -> None:
    """Refuses buckets of a size where all gradients go together.

    Raises:
        ConfigError: Both were asked for.
    """
    if run.techniques.overlap is False and run.options.bucket_bytes is not None:
        raise ConfigError(
            f"--no-overlap puts all gradients into one bucket; leave out --bucket-bytes {run.options.bucket_bytes}."
        )
