"""What a step comes to: tokens a second, the share of the peak, and the days, the price and the energy of a whole training."""

import dataclasses

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.seconds.machine import Machine
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_positions
from samestep.experiments.printing.text import large_number

_HOUR = 3600
_DAY = 24 * _HOUR


@dataclasses.dataclass(frozen=True)
class Training:
    """A whole training, whose cost is asked for."""

    tokens: float | None = flag(
        None, "how many tokens are trained on in all, as in 15e12: says the days it takes", above=0
    )
    price: float | None = flag(None, "the price of one device for an hour: says what --tokens costs", above=0)

    def check(self, base: Run) -> None:
        """Refuses what has no tokens to count, and a price of nothing.

        Raises:
            ConfigError: The model takes no sequences, or a price was given alone.
        """
        if self.price is not None and self.tokens is None:
            raise ConfigError(
                f"--price {self.price:g} has nothing to buy; give --tokens as well, as in --tokens 15e12."
            )
        if self.tokens is not None and num_positions(base.workload.model) == 1:
            raise ConfigError(
                f"{base.workload.name} takes no sequences of tokens; leave out --tokens, or choose a model that does."
            )


def examples_per_second(base: Run, seconds: float) -> float:
    """Returns how many examples are trained on in a second.

    Args:
        base: The model and its batch.
        seconds: Those of a step.
    """
    return base.batch_size / seconds


def model_flops_utilization(base: Run, seconds: float, machine: Machine, devices: int) -> float:
    """Returns the share of the devices' peak that the model's own arithmetic takes: forward once, backward twice as much.

    What is computed again does not count, and attention counts whole, also where it is causal.

    Args:
        base: The model and its batch.
        seconds: Those of a step.
        machine: Has the peak of a device.
        devices: How many there are.

    References:
        Chowdhery et al., arXiv 2204.02311, appendix B (PaLM).
    """
    flops = 3 * base.batch_size * sum(segment.flops for segment in base.workload.model.segments())
    return flops / (seconds * devices * machine.peak_flops_per_second)


def say_rate(base: Run, seconds: float, machine: Machine, devices: int) -> str:
    """Returns tokens a second, if there are any, and the share of the peak, as a sentence.

    Args:
        base: The model and its batch.
        seconds: Those of a step.
        machine: Has the peak of a device.
        devices: How many there are.
    """
    share = f"{100 * model_flops_utilization(base, seconds, machine, devices):.0f} % of the peak"
    positions = num_positions(base.workload.model)
    if positions == 1:
        return f"That is {share} (MFU)."
    tokens = large_number(round(examples_per_second(base, seconds) * positions))
    return f"That is {tokens} tokens a second, {share} (MFU, with attention counted in full)."


def say_whole(training: Training, base: Run, seconds: float, machine: Machine, devices: int) -> str:
    """Returns what all tokens take, cost and draw, as a sentence; "" where nobody asked.

    Args:
        training: What was asked.
        base: The model and its batch.
        seconds: Those of a step.
        machine: Says what a device draws, if anybody knows.
        devices: How many there are.
    """
    if training.tokens is None:
        return ""
    whole = whole_seconds(training.tokens, base, seconds)
    hours = devices * whole / _HOUR
    told = f"{large_number(round(training.tokens))} tokens take {_time(whole)} and {large_number(round(hours))} device hours"
    if training.price is not None:
        told += f", which cost {large_number(round(training.price * hours))}"
    if machine.device_watts is not None:
        told += f"; the devices draw at most {_energy(machine.device_watts * hours)}"
    return f"{told}. Restarts and evaluation come on top."


def whole_seconds(tokens: float, base: Run, seconds: float) -> float:
    """Returns the seconds of a whole training.

    Args:
        tokens: How many tokens are trained on.
        base: The model and its batch.
        seconds: Those of a step.
    """
    return tokens / num_positions(base.workload.model) / examples_per_second(base, seconds)


def _time(seconds: float) -> str:
    return f"{seconds / _DAY:,.1f} days" if seconds >= _DAY else f"{seconds / _HOUR:.3g} hours"


def _energy(watt_hours: float) -> str:
    names = ((1e9, "GWh"), (1e6, "MWh"))
    scale, name = next((each for each in names if watt_hours >= each[0]), (1e3, "kWh"))
    return f"{watt_hours / scale:.3g} {name}"
