"""A step of rank 0 among ranks that are not there, observed beside its prediction: `samestep predict torch:fsdp --observe`."""

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
from samestep.experiments.comparing.measures.quantity import MARK
from samestep.experiments.printing.formats import Case, Document
from samestep.experiments.printing.text import bullets, github, screen_width, size

TIMEOUT_SECONDS = 600


def _check_observed(run: Run) -> None:
    """Refuses a step that cannot be taken, or not among ranks that are not there.

    Raises:
        ConfigError: It is so.
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
    """What rank 0 of so many ranks sent in a step, and the bytes that it holds."""

    exchanges: tuple[Exchange, ...]
    state_bytes: int

    @classmethod
    def of(cls, row: Prediction, launch: Launch) -> Self:
        """Takes the step, in a process of its own.

        Args:
            row: What was predicted.
            launch: Where a user's model and data are.

        Raises:
            ConfigError: The row has no ranks that could be away, or the request is of what no run can do.
            Unavailable: The framework refuses to take the step so.
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
        """Holds it against what was predicted: every exchange, and the state of a device."""
        seen, said = ({each.name: each for each in every} for every in (self.exchanges, row.ledger.exchanges))
        exchanges = [ObservedAmount(name, *_of(seen.get(name)), *_of(said.get(name))) for name in {**said, **seen}]
        most = row.ledger.state_bytes
        return [*exchanges, ObservedAmount("state of a device", self.state_bytes, None, most, None)]

    def beside(self, row: Prediction, predicted: Document) -> Document:
        """Adds what was observed to the document of a prediction.

        Args:
            row: What was predicted.
            predicted: Its document.
        """
        amounts = self.against(row)
        missed = [each.name for each in amounts if each.is_missed]

        def text() -> str:
            width = screen_width()
            table = [[each.name, each.observed, each.predicted + MARK * each.is_missed] for each in amounts]
            lines = [f"observed: one real step of rank 0 of {row.run.num_devices:,}, of which the others are not there"]
            lines += [f"{MARK} the prediction is not what was observed"] if missed else []
            shown = github(["quantity", "observed", "predicted"], table, width)
            return f"{predicted.text()}\n\n{shown}\n\n{bullets(lines, width)}"

        case = Case(f"{row.cell}, observed", "failure" if missed else "passed", ", ".join(missed))
        record = {**predicted.record, "observed": self}
        return dataclasses.replace(predicted, text=text, record=record, cases=[*predicted.cases, case])


@dataclasses.dataclass(frozen=True)
class ObservedAmount:
    """Bytes of a quantity, and in how many operations if it is an exchange, observed and predicted."""

    name: str
    observed_bytes: float
    observed_count: int | None
    predicted_bytes: float
    predicted_count: int | None

    @property
    def is_missed(self) -> bool:
        """Whether they differ at all."""
        return (self.observed_bytes, self.observed_count) != (self.predicted_bytes, self.predicted_count)

    @property
    def observed(self) -> str:
        """What was observed, as people read it."""
        return _spell(self.observed_bytes, self.observed_count)

    @property
    def predicted(self) -> str:
        """What was predicted, as people read it."""
        return _spell(self.predicted_bytes, self.predicted_count)


def _of(exchange: Exchange | None) -> tuple[float, int]:
    return (0, 0) if exchange is None else (exchange.bytes_per_step, exchange.count_per_step)


def _spell(count: float, operations: int | None) -> str:
    return "none" if operations == 0 else size(count) + ("" if operations is None else f" in {operations:,}")
