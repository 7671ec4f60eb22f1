"""The classes of memory that a device holds, defined here once for every table, sentence and figure."""

import dataclasses
from collections.abc import Callable

from samestep.common.ledger import Footprint


@dataclasses.dataclass(frozen=True)
class MemoryClass:
    """A class of memory that a device holds.

    Attributes:
        name: Its name in every table and sentence.
        kind: The class of its shapes in a style sheet.
        held: Its bytes on a device; None if they were neither counted nor predicted.
        title: A longer name for legends; "" if `name` is used there as well.
    """

    name: str
    kind: str
    held: Callable[[Footprint], int | None]
    title: str = ""

    def bytes_of(self, row: Footprint) -> int:
        """Returns its bytes on a device; 0 if they were neither counted nor predicted."""
        return self.held(row) or 0


PARAMETERS = MemoryClass("parameters", "params", lambda row: row.params_bytes)
PARAMETERS_PEAK = MemoryClass("parameters at their peak", "peak", lambda row: row.params_peak_bytes)
GATHERED = MemoryClass(
    "parameters gathered for a moment", "gathered", lambda row: row.params_peak_bytes - row.params_bytes
)
GRADIENTS = MemoryClass("gradients", "gradients", lambda row: row.gradients_bytes)
OPTIMIZER_STATE = MemoryClass("optimizer state", "optimizer", lambda row: row.optimizer_bytes)
RESIDUALS = MemoryClass("residuals", "residuals", lambda row: row.residuals_bytes, "residuals of compression")
STATE = MemoryClass("state", "state", lambda row: row.state_bytes)
ACTIVATIONS = MemoryClass("activations", "activations", lambda row: row.activations_bytes)

STORED = (PARAMETERS, PARAMETERS_PEAK, GRADIENTS, OPTIMIZER_STATE, RESIDUALS)
"""The classes whose size does not depend on the batch."""
