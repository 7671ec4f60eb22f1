"""Compression as a technique."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError
from samestep.common.features.used import exchange_within, layers_of
from samestep.common.flags import spell_flag
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.compress.cost import compressed_sends, residuals_bytes
from samestep.common.techniques.compress.flag import CompressFlags
from samestep.common.techniques.technique import GradientExchange, Technique

if TYPE_CHECKING:
    from samestep.common.program import Arrays


OF_POWERSGD = ("compress_rank", "compress_warmup_steps")
"""The options that only PowerSGD uses."""


def check_compression(run: Run) -> None:
    """Refuses compression if nothing is exchanged, and options of PowerSGD for other methods.

    Raises:
        ConfigError: There is one device, or the method is not PowerSGD.
    """
    method = run.techniques.compress
    within = exchange_within(run) if method is not None else None
    if within and (layers_of(run.workload.model) or within.framework_sends(run, "forward")):
        raise ConfigError(
            f"--compress is judged shard by shard, and no shard has {within.in_words}; leave out {within.flag}."
        )
    for name in OF_POWERSGD:
        given = getattr(run.techniques, name)
        if method != "powersgd" and given != getattr(Techniques(), name):
            flag = f"{spell_flag(name)} {given}"
            raise ConfigError(f"{flag} is an option of powersgd; add --compress powersgd, or leave it out.")
    if method is not None and run.num_devices == 1:
        raise ConfigError(
            f"--compress {method} is for what devices exchange, and there is one device; add --devices 2."
        )


def check_warm_up(run: Run) -> None:
    """Refuses a run that ends before PowerSGD begins, since the prediction would apply to none of its steps.

    Raises:
        ConfigError: The warm-up is as long as the run.
    """
    given, method = run.techniques.compress_warmup_steps, run.techniques.compress
    if method is not None and given >= run.steps:
        raise ConfigError(
            f"--compress-warmup-steps {given} leaves none of {run.steps} steps to {method}; give at most {run.steps - 1}, or "
            f"leave out --compress {method}: the steps before it are the same."
        )


def exchange(run: Run, parts: Sequence["Arrays"], local: Sequence["Arrays"]) -> tuple["Arrays", tuple["Arrays", ...]]:
    """Sums the gradients of all ranks, as `statement.exchange` does.

    Args:
        run: The run with the method.
        parts: The gradients of each rank.
        local: What each rank kept from the last exchange.
    """
    from samestep.common.techniques.compress import statement  # here: it needs NumPy, which a prediction does without

    return statement.exchange(run, parts, local)


COMPRESS = Technique(
    flags=CompressFlags,
    refuse=check_compression,
    refuse_launch=check_warm_up,
    in_textbooks=("activations",),
    gradient_sends=compressed_sends,
    exchange=GradientExchange(
        statement=exchange,
        kept_bytes=residuals_bytes,
        first_step=lambda techniques: techniques.compress_warmup_steps,
    ),
)
