"""Observes a step of rank 0 among ranks that do not exist, beside its prediction: `samestep predict torch:fsdp --observe`."""

import dataclasses
from pathlib import Path
from typing import Self

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.ledger import Exchange
from samestep.common.request import FRAMEWORKS, Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run
from samestep.common.runtime.measured import adapter
from samestep.common.runtime.parent.asking import Question, ask
from samestep.common.runtime.parent.processes.scratch import make_scratch
from samestep.common.runtime.topology import ranks
from samestep.common.strategy import Run
from samestep.experiments.advising.prediction import Prediction
from samestep.experiments.comparing.quantity import MARK
from samestep.experiments.printing.formats import Case, Document
from samestep.experiments.printing.ledger_table import Amount
from samestep.experiments.printing.text import bullets, github, paragraphs, screen_width

TIMEOUT_SECONDS = 600


def _check_observed(run: Run) -> None:
    """Refuses a step that cannot be taken, or that cannot be taken among ranks that do not exist.

    Raises:
        ConfigError: The step is refused.
    """
    if run.strategy.topology is not ranks or run.strategy.backend != "gloo":
        raise ConfigError(
            f"--observe takes a step among ranks that are not there, and {run.name} has none; choose torch:fsdp, or another "
            "row of torch's with ranks over gloo."
        )
    if run.weights is not None or run.workload.source:
        asked = f"--weights {run.weights}" if run.weights else f"--workload {run.workload.name}"
        raise ConfigError(f"--observe takes a real step, and {asked} can only be predicted; leave one of the two out.")


@dataclasses.dataclass(frozen=True)
class Observation:
    """What rank 0 of several ranks sent in a step, and the bytes that it holds."""

    exchanges: tuple[Exchange, ...]
    state_bytes: int

    @classmethod
    def of(cls, row: Prediction, launch: Launch) -> Self:
        """Takes the step, in a separate process.

        Args:
            row: The prediction.
            launch: Names the user's model and data.

        Raises:
            ConfigError: The strategy has no ranks over gloo, or the request can only be predicted.
            Unavailable: The framework refuses to take the step in this way.
            WorkerFailed: The process died.
        """
        run = row.run
        _check_observed(run)
        with make_scratch() as scratch:
            directory = open_run(Path(scratch) / "run", as_config(run, launch))
            step = Question(
                module=f"{FRAMEWORKS[run.framework]}.observing.absent_ranks",
                arguments=(str(directory),),
                late=f"the observed step took more than {TIMEOUT_SECONDS} s; take a smaller model.",
                failed="the process that observes ended with exit code {code}",
            )
            (told,) = ask([step], TIMEOUT_SECONDS)
        if isinstance(told, dict) and "why_not" in told:
            raise Unavailable(f"{run.name} cannot be observed among ranks that are not there: {told['why_not']}")
        return adapter(cls).validate_python(told)

    def against(self, row: Prediction) -> list["ObservedAmount"]:
        """Compares the observation with its prediction: every exchange, and the state of a device."""
        seen, said = ({each.name: each for each in every} for every in (self.exchanges, row.ledger.exchanges))
        exchanges = [ObservedAmount(name, _of(seen.get(name)), _of(said.get(name))) for name in {**said, **seen}]
        held = ObservedAmount("state of a device", Amount(self.state_bytes), Amount(row.ledger.state_bytes or 0))
        return [*exchanges, held]

    def beside(self, row: Prediction, predicted: Document) -> Document:
        """Adds the observation to the document of a prediction.

        Args:
            row: The prediction.
            predicted: Its document.
        """
        amounts = self.against(row)
        missed = [each.name for each in amounts if each.is_missed]

        def text() -> str:
            lines = [f"observed: one real step of rank 0 of {row.run.num_devices:,}; the other ranks do not exist"]
            lines += [f"{MARK} the prediction differs from the observation"] if missed else []
            shown = github(["quantity", "observed", "predicted"], [each.cells for each in amounts], screen_width())
            return paragraphs(predicted.text(), shown, bullets(lines))

        case = Case(f"{row.cell}, observed", "failure" if missed else "passed", ", ".join(missed))
        record = {**predicted.record, "observed": self}
        return dataclasses.replace(predicted, text=text, record=record, cases=[*predicted.cases, case])


@dataclasses.dataclass(frozen=True)
class ObservedAmount:
    """The observed and predicted bytes of a quantity, with the number of operations if it is an exchange."""

    name: str
    observed: Amount
    predicted: Amount

    @property
    def is_missed(self) -> bool:
        """Whether the two differ at all."""
        return self.observed != self.predicted

    @property
    def cells(self) -> list[str]:
        """Returns the cells of its line: the name, the observation, and the prediction, which is marked if it is wrong."""
        return [self.name, _spell(self.observed), _spell(self.predicted) + MARK * self.is_missed]


def _of(exchange: Exchange | None) -> Amount:
    return Amount(0, 0) if exchange is None else Amount(exchange.bytes_per_step, exchange.count_per_step)


def _spell(amount: Amount) -> str:
    return "none" if amount.count == 0 else str(amount)
