"""Predictions for one or many strategies, and their text."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import Scalar
from samestep.common.mesh import Mesh
from samestep.common.request import RunConfig, launch_of
from samestep.common.techniques.used import rounding_asked
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.table import title
from samestep.experiments.advising.forecast_table import forecast_table
from samestep.experiments.advising.prediction import (
    Assumptions,
    Prediction,
    describing,
    parse_memory,
    predict_row,
    told_to_fit,
)
from samestep.experiments.comparing.comparison_request import every_cell
from samestep.experiments.printing.formats import Case, Document, write
from samestep.experiments.printing.ledger_table import ledger_table
from samestep.experiments.printing.text import bullets, fill, large_number, paragraphs, sharing, size

if TYPE_CHECKING:
    from samestep.experiments.advising.observation import Observation


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What strategies would need and send, predicted without a run.

    Attributes:
        rows: The predictions, in the order of the catalogue.
        refused: Cell -> why the row cannot take the request.
        memory: The bytes of a device, if they were given.
        observed: The observed step of the strategy among ranks that do not exist, if that was requested.
    """

    rows: tuple[Prediction, ...]
    refused: Mapping[str, str]
    memory: int | None = None
    observed: "Observation | None" = None

    def table(self, width: int | None = None) -> str:
        """Returns a table with a line for each strategy: what the fullest device holds and needs, what is sent, whether it fits.

        Args:
            width: The characters of a line; those of the screen, unless given.
        """
        return forecast_table(self.rows, self.memory, width)

    def to_json(self) -> str:
        """Returns what `samestep predict --format json` prints."""
        return write(self.document(), "json")

    def document(self) -> Document:
        """Returns everything as a document for any format."""
        cases = [self._case(row) for row in self.rows]
        cases += [Case(cell, "skipped", reason) for cell, reason in self.refused.items()]
        record = {
            "device_memory_bytes": self.memory,
            "rows": [
                {**_figures(row, self.memory), "ledger": row.ledger, "textbook": row.formulas} for row in self.rows
            ],
            "not_possible": [{"cell": cell, "reason": reason} for cell, reason in self.refused.items()],
        }
        figures = [_figures(row, self.memory) for row in self.rows]
        found = Document("samestep predict", self.report, record, figures, cases)
        return self.observed.beside(self.rows[0], found) if self.observed else found

    def report(self) -> str:
        """Returns the text for people."""
        if len(self.rows) == 1 and not self.refused:
            return self._one(self.rows[0])
        refused = [f"{cell} cannot take it: {reason}" for cell, reason in self.refused.items()]
        return paragraphs(_caption(self.rows[0]), self.table(), bullets(refused), self._nearest())

    def _one(self, row: Prediction) -> str:
        table = ledger_table(row.ledger, textbook=row.formulas)
        each = f"sent by each of {row.num_devices:,} devices: {size(row.sent_bytes_per_device)} a step, on average"
        held, beyond = "gradients, optimizer state and activations are", "buffers"
        if not row.knows_activations:
            held, beyond = "gradients and optimizer state are", "activations, which are not predicted, buffers"
        told = [
            *([each] if row.num_devices > 1 else []),
            f"needed: at most {size(row.needed_bytes)} on a device, if its parameters, {held} at their peaks at once; "
            f"{beyond} and the framework come on top",
        ]
        fits = fill(told_to_fit(row, self.memory)) if self.memory else ""
        return paragraphs(_caption(row, self.observed is not None), f"{table}\n{bullets(told)}", fits)

    def _case(self, row: Prediction) -> Case:
        """Returns a row as a test case. It fails without room for its state, but not if only activations may lack room."""
        fails = self.memory is not None and row.fits(self.memory) == "no"
        return Case(row.cell, "failure", f"a device needs up to {size(row.needed_bytes)}") if fails else Case(row.cell)

    def _nearest(self) -> str:
        """Returns by how much the best row misses if no row fits, and on how many devices it would fit; "" if one fits."""
        memory = self.memory
        if memory is None or any(row.fits(memory) == "yes" for row in self.rows):
            return ""
        best = min(self.rows, key=lambda row: (not row.knows_activations, row.needed_bytes))
        return fill(f"No strategy fits. {told_to_fit(best, memory)}")


def forecast(cell: Cell | None, base: RunConfig, assumed: Assumptions, observe: bool = False) -> Forecast:
    """Predicts a strategy, or every one that can take the request; a user's own model is described first.

    Args:
        cell: The cell, which `base` includes; None stands for every strategy.
        base: The request.
        assumed: What is assumed of the machine.
        observe: Whether to take a step of the strategy among ranks that do not exist.

    Raises:
        ConfigError: The request is wrong, no strategy can take it, or none was named to be observed.
        Unavailable: The framework of the user's model is not installed, or the strategy cannot be observed.
        WorkerFailed: The process that observes died.
    """
    if observe and cell is None:
        raise ConfigError("--observe takes a step of one row; name it, as in samestep predict torch:fsdp --observe.")
    memory = None if assumed.device_memory is None else parse_memory(assumed.device_memory)
    with describing(base) as describe:
        if cell is None:
            return Forecast(*_every_row(base, assumed, describe), memory)
        row = predict_row(str(cell), asked := describe(base), assumed)
        if not observe:
            return Forecast((row,), {}, memory)
        from samestep.experiments.advising.observation import Observation  # here: a prediction needs no NumPy

        return Forecast((row,), {}, memory, Observation.of(row, launch_of(asked)))


def _every_row(
    base: RunConfig, assumed: Assumptions, describe: Callable[[RunConfig], RunConfig]
) -> tuple[tuple[Prediction, ...], dict[str, str]]:
    """Predicts every row that can take the request, and returns why each of the others cannot."""
    cells = every_cell(None)
    axes = {name for name, _ in Mesh.parse(base.mesh).axes} if base.mesh else set()
    able = [cell for cell in cells if axes <= {*cell.info.axes}]
    refused = {cell.name: f"it does not split along {', '.join(sorted(axes))}" for cell in cells if cell not in able}
    rows = []
    for each in able:
        try:
            rows.append(predict_row(each.name, describe(each.apply_to(base)), assumed, is_named=False))
        except ConfigError as error:
            refused[each.name] = str(error)
    if not rows:
        raise ConfigError(f"no strategy can take it. {next(reversed(refused.items()))[1]}")
    return tuple(rows), _together(refused)


def _together(refused: Mapping[str, str]) -> dict[str, str]:
    """Returns one entry for all rows with the same reason."""
    found = sharing(
        ("it " * reason.startswith(f"{cell} ") + reason.removeprefix(f"{cell} "), cell)
        for cell, reason in refused.items()
    )
    return {", ".join(names): reason for reason, names in found.items()}


def _caption(row: Prediction, was_observed: bool = False) -> str:
    """Returns what is predicted, and where the sizes of a published model come from."""
    run = row.run
    numbers = run.dtype if run.weights is None else f"{run.weights} with {run.dtype} master weights"
    numbers = f"{numbers}, computed in {run.arithmetic}" if run.arithmetic != run.dtype else numbers
    size = large_number(num_params(run.workload.model))
    line = (
        f"Predicted{'' if was_observed else ', nothing was run'}: {title(run.workload.name, None)} ({size} parameters), "
        f"global batch {run.batch_size}, {run.optimizer.name}, {numbers}."
    )
    return fill(f"{line}{f' Sizes: {run.workload.source}.' if run.workload.source else ''}")


def _figures(row: Prediction, memory: int | None) -> dict[str, Scalar]:
    """Returns the columns for programs: those of the device that needs most, and those of all devices together."""
    held = row.fullest
    return {
        "cell": row.cell,
        "workload": row.run.workload.name,
        "parameters": num_params(row.run.workload.model),
        "mesh": str(row.run.mesh),
        "devices": row.run.num_devices,
        "global_batch_size": row.run.batch_size,
        "optimizer": row.run.optimizer.name,
        "dtype": row.run.dtype,
        "weights": row.run.weights,
        **rounding_asked(row.run.techniques),
        "backend": row.backend,
        "params_bytes": held.params_bytes,
        "params_peak_bytes": held.params_peak_bytes,
        "gradients_bytes": held.gradients_bytes,
        "optimizer_bytes": held.optimizer_bytes,
        "residuals_bytes": held.residuals_bytes,
        "activations_bytes": held.activations_bytes,
        "needed_bytes": row.needed_bytes,
        "textbook_state_bytes": row.textbook("state"),
        "sent_bytes_per_step": row.ledger.sent_bytes_per_step,
        "sent_bytes_per_device": row.sent_bytes_per_device,
        "textbook_sent_bytes": row.textbook("sent"),
        "device_memory_bytes": memory,
        "fits": None if memory is None else row.fits(memory),
    }
