"""The flags of steps that ranks take alone."""

import dataclasses

from samestep.common.flags import MAX_FACTOR, MAX_STEPS, flag


@dataclasses.dataclass(frozen=True)
class LocalStepsFlags:
    """How many steps ranks take alone, and how their weights are combined after these."""

    local_steps: int | None = flag(
        None,
        "each rank takes this many steps alone, on its own shard of the batch and with its own optimizer state; then the ranks"
        " average how far their weights moved (local SGD, DiLoCo; default: gradients are summed in every step)",
        least=1,
        most=MAX_STEPS,
    )
    outer_rate: float = flag(
        1.0,
        "learning rate of the outer step, which moves the shared weights toward the average after each period of --local-steps",
        above=0,
        most=MAX_FACTOR,
    )
    outer_momentum: float = flag(
        0.0, "Nesterov momentum of the outer step, after each period of --local-steps", least=0, most=0.999
    )

    @property
    def steps_of_period(self) -> int:
        """The number of steps from one exchange to the next; 1 if ranks exchange in every step."""
        return self.local_steps or 1

    @property
    def keeps_shared(self) -> bool:
        """Returns whether a rank keeps the weights with which a period began; a plain average does not need them."""
        return self.outer_rate != 1 or self.outer_momentum > 0
