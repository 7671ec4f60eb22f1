"""What a verdict may ask for: steps of a run that are taken again."""

import dataclasses
from typing import Protocol

from samestep.common.program import TrainState
from samestep.common.steps.log import Log
from samestep.common.strategy import Run


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Steps that were taken, from the first step of a run on, and where they led.

    Attributes:
        log: The log of the steps.
        state: After the last of them.
    """

    log: Log
    state: TrainState

    @property
    def losses(self) -> tuple[float, ...]:
        """One per step."""
        return self.log.losses


class Rerun(Protocol):
    """Takes steps again. A launcher does it in processes of their own."""

    def steps(self, run: Run, start: TrainState | None = None) -> Curve:
        """Takes a run to its last step.

        Args:
            run: The run that is judged, or one like it: shorter, in another dtype, without a suspect, on one device.
            start: The state that it continues; at step 0, its first weights. None: it starts where the judged run did.
        """
        ...
