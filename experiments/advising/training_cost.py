"""The cost of a step: tokens per second, the share of the peak, and the days, the price and the energy of a whole training."""

import dataclasses

from samestep.common.errors import ConfigError, percent
from samestep.common.flags import flag
from samestep.common.seconds.machine import Machine
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_positions
from samestep.experiments.printing.text import large_number

_HOUR = 3600
DAY = 24 * _HOUR


@dataclasses.dataclass(frozen=True)
class Training:
    """A whole training whose cost is requested."""

    tokens: float | None = flag(
        None, "number of tokens of the whole training, as in 15e12; prints how many days it takes", above=0
    )
    price: float | None = flag(None, "the price of one device for an hour; prints what --tokens costs", above=0)

    def check(self, base: Run) -> None:
        """Refuses a model without tokens to count, and a price without a number of tokens.

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


@dataclasses.dataclass(frozen=True)
class StepCost:
    """The cost of a step on all devices of a machine.

    Attributes:
        base: The model and its batch.
        seconds: The seconds of a step.
        machine: The machine, with the peak of a device, and its power if known.
        devices: The number of devices.
        training: The whole training.
    """

    base: Run
    seconds: float
    machine: Machine
    devices: int
    training: Training = dataclasses.field(default_factory=Training)

    @property
    def examples_per_second(self) -> float:
        """The number of training examples per second."""
        return self.base.batch_size / self.seconds

    @property
    def tokens(self) -> str:
        """The number of training tokens per second, as text."""
        return large_number(self.examples_per_second * num_positions(self.base.workload.model))

    @property
    def flops_utilization(self) -> float:
        """The share of the devices' peak that the model's own arithmetic reaches: forward once, backward twice as much.

        Recomputation does not count, and attention counts in full, even if it is causal.

        References:
            Chowdhery et al., arXiv 2204.02311, appendix B (PaLM).
        """
        flops = 3 * self.base.batch_size * sum(segment.flops for segment in self.base.workload.model.segments())
        return flops / (self.seconds * self.devices * self.machine.peak_flops_per_second)

    @property
    def utilization(self) -> str:
        """The share of the peak as text, in percent."""
        return percent(self.flops_utilization)

    @property
    def whole_seconds(self) -> float:
        """The seconds of the whole training; 0 if it was not requested."""
        return (self.training.tokens or 0.0) / num_positions(self.base.workload.model) / self.examples_per_second

    def say_rate(self) -> str:
        """Returns tokens a second, if there are any, and the share of the peak, as a sentence."""
        if num_positions(self.base.workload.model) == 1:
            return f"That is {self.utilization} of the peak FLOP/s of the devices (MFU)."
        return (
            f"That is {self.tokens} tokens per second and {self.utilization} of the peak FLOP/s of the devices (MFU, with "
            "attention counted in full)."
        )

    def say_whole(self) -> str:
        """Returns the time, price and energy of all tokens, as a sentence; "" if it was not requested."""
        if self.training.tokens is None:
            return ""
        hours, time = self.devices * self.whole_seconds / _HOUR, _time(self.whole_seconds)
        said = f"{large_number(self.training.tokens)} tokens take {time} and {large_number(hours)} device hours"
        if self.training.price is not None:
            said += f", which cost {large_number(self.training.price * hours)}"
        if self.machine.device_watts is not None:
            said += f"; the devices draw at most {_energy(self.machine.device_watts * hours)}"
        return f"{said}. Restarts and evaluation come on top."


def _time(seconds: float) -> str:
    return f"{seconds / DAY:,.1f} days" if seconds >= DAY else f"{seconds / _HOUR:.3g} hours"


def _energy(watt_hours: float) -> str:
    names = ((1e9, "GWh"), (1e6, "MWh"))
    scale, name = next((each for each in names if watt_hours >= each[0]), (1e3, "kWh"))
    return f"{watt_hours / scale:.3g} {name}"
