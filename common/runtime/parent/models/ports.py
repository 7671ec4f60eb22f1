"""The ports that verdicts ask for, each taken once."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samestep.common.errors import SamestepError
from samestep.common.request import Launch, RunConfig
from samestep.common.run import as_config
from samestep.common.strategy import Run

if TYPE_CHECKING:
    from samestep.common.judging.ported import PortedModel

_DECIDE = ("model", "data", "seed", "batch_size", "optimizer", "learning_rate", "timeout_seconds")
"""What of a run's request a port has as well."""


class Ports:
    """Holds the two models of a run's file against each other, once for all the runs of a command."""

    def __init__(self, port: Callable[[RunConfig], "PortedModel"]) -> None:
        """Asks nothing yet.

        Args:
            port: Runs both implementations.
        """
        self._port = port
        self._found: dict[tuple[object, ...], PortedModel | None] = {}

    def ask(self, launch: Launch, run: Run, steps: int) -> "PortedModel | None":
        """Finds out whether the two are the same model, with the curve that a run takes; None if that fails.

        Args:
            launch: Names the model and the data.
            run: Says the batches, the optimizer and its rate.
            steps: The steps of the curve.
        """
        own = as_config(run, launch)
        asked = {name: getattr(own, name) for name in _DECIDE} | {"steps": steps}
        if (key := tuple(asked.values())) not in self._found:
            try:
                self._found[key] = self._port(RunConfig(**asked))
            except SamestepError:
                self._found[key] = None
        return self._found[key]
