"""Predictions of one or many rows, and what is printed of them."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from samestep.common.catalog import catalogue
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import Scalar
from samestep.common.ledger import STATE_OF_A_DEVICE
from samestep.common.mesh import AXES
from samestep.common.request import RunConfig
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.table import title
from samestep.experiments.advising.prediction import Assumptions, Prediction, parse_memory, predict_row, told_to_fit
from samestep.experiments.printing.formats import Case, Document, write
from samestep.experiments.printing.ledger_table import ledger_table
from samestep.experiments.printing.text import (
    Column,
    bullets,
    cells,
    common_unit,
    fill,
    fit,
    github,
    in_unit,
    large_number,
    screen_width,
    size,
)


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What was predicted.

    Attributes:
        rows: The predictions, in the order of the catalogue.
        refused: Cell -> why the row cannot take the request.
        memory: The bytes of a device, if they were given.
    """

    rows: tuple[Prediction, ...]
    refused: Mapping[str, str]
    memory: int | None = None

    def table(self, width: int | None = None) -> str:
        """Returns one line a row: what the device that needs most holds and needs, what is sent, and whether it fits.

        Args:
            width: What it has to fit into; the screen, unless given.
        """
        width = width or screen_width()
        shown = fit(_columns(self), self.rows, width)
        lines = [f"{column.header}: {column.meaning}" for column in shown if column.meaning]
        return f"{github(*cells(shown, self.rows), width)}\n\n{bullets(lines, width)}"

    def to_json(self) -> str:
        """As `samestep predict --format json` prints it."""
        return write(self.document(), "json")

    def document(self) -> Document:
        """Everything, in a form of which any format can be made."""
        cases = [self._case(row) for row in self.rows]
        cases += [Case(cell, "skipped", reason) for cell, reason in self.refused.items()]
        record = {
            "device_memory_bytes": self.memory,
            "rows": [
                {**_figures(row, self.memory), "ledger": row.ledger, "textbook": row.formulas} for row in self.rows
            ],
            "not_possible": [{"cell": cell, "reason": reason} for cell, reason in self.refused.items()],
        }
        return Document(
            "samestep predict", self.report, record, [_figures(row, self.memory) for row in self.rows], cases
        )

    def report(self) -> str:
        """Everything that people read."""
        width = screen_width()
        if len(self.rows) == 1 and not self.refused:
            return self._one(self.rows[0], width)
        refused = [f"{cell} cannot take it: {reason}" for cell, reason in self.refused.items()]
        parts = [_caption(self.rows[0], width), self.table(width), bullets(refused, width), self._nearest(width)]
        return "\n\n".join(filter(None, parts))

    def _one(self, row: Prediction, width: int) -> str:
        table = ledger_table(row.ledger, textbook=row.formulas, width=width)
        told = [
            f"sent by each of {row.num_devices:,} devices: {size(row.sent_bytes_per_device)}, on average",
            f"needed: at most {size(row.needed_bytes)} on a device, if parameters, gradients, optimizer state and "
            "activations are at their peaks at once; buffers and the framework come on top",
        ]
        parts = [_caption(row, width), f"{table}\n{bullets(told, width)}"]
        return "\n\n".join(parts + ([fill(self._sentence(row), width)] if self.memory else []))

    def _case(self, row: Prediction) -> Case:
        """Returns a row that has no room for its state fails; one that may lack room for activations alone does not."""
        fails = self.memory is not None and row.fits(self.memory) == "no"
        return Case(row.cell, "failure", f"a device needs up to {size(row.needed_bytes)}") if fails else Case(row.cell)

    def _sentence(self, row: Prediction) -> str:
        return told_to_fit(row, self.memory or 0)

    def _nearest(self, width: int) -> str:
        """Returns where no row fits: by how much the best one misses, and on how many devices it would fit."""
        memory = self.memory
        if memory is None or any(row.fits(memory) == "yes" for row in self.rows):
            return ""
        best = min(self.rows, key=lambda row: (not row.knows_activations, row.needed_bytes))
        return fill(f"No row fits. {self._sentence(best)}", width)


def forecast(cell: Cell | None, base: RunConfig, assumed: Assumptions) -> Forecast:
    """Predicts a row, or every row that can take the request; a user's own model is described first.

    Args:
        cell: The row, which `base` includes; None stands for every row.
        base: The request.
        assumed: Of the machine.

    Raises:
        ConfigError: The request is wrong, or no row can take it.
        Unavailable: The framework of the user's model is not installed.
    """
    if base.model is None:
        return _forecast(cell, base, assumed, lambda config: config)
    from samestep.common.runtime.parent.launcher import Launcher  # here: other predictions start nothing

    with Launcher() as launcher:
        return _forecast(cell, base, assumed, launcher.describe)


def _forecast(
    cell: Cell | None, base: RunConfig, assumed: Assumptions, describe: Callable[[RunConfig], RunConfig]
) -> Forecast:
    memory = None if assumed.device_memory is None else parse_memory(assumed.device_memory)
    if cell is not None:
        return Forecast((predict_row(str(cell), describe(base), assumed),), {}, memory)
    cells = [Cell(framework, row.name) for framework, row in catalogue() if framework != "numpy"]
    axes = set(re.findall(r"(\w+)\s*=", base.mesh or "")) & {*AXES}
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
    return Forecast(tuple(rows), _together(refused), memory)


def _together(refused: Mapping[str, str]) -> dict[str, str]:
    """Returns one entry for all rows with the same reason."""
    sharing: dict[str, list[str]] = {}
    for cell, reason in refused.items():
        sharing.setdefault(reason.removeprefix(f"{cell} "), []).append(cell)
    return {", ".join(names): reason for reason, names in sharing.items()}


def _caption(row: Prediction, width: int) -> str:
    """Returns what is predicted, and where the sizes of a published model come from."""
    run = row.run
    numbers = run.dtype if run.weights is None else f"{run.weights} with {run.dtype} master weights"
    numbers = f"{numbers}, computed in {run.arithmetic}" if run.arithmetic != run.dtype else numbers
    size = large_number(num_params(run.workload.model))
    line = (
        f"Predicted, nothing was run: {title(run.workload.name, None)} ({size} parameters), "
        f"global batch {run.batch_size}, {run.optimizer.name}, {numbers}."
    )
    return fill(f"{line}{f' Sizes: {run.workload.source}.' if run.workload.source else ''}", width)


def _columns(found: Forecast) -> tuple[Column[Prediction], ...]:
    memory = found.memory or 0
    fits = Column[Prediction](
        "fits",
        lambda row: row.fits(memory),
        f"whether that is at most {size(memory)}; without activations: if these are fewer, or are not predicted",
    )
    of = functools.partial(_in_bytes, found.rows)
    return (
        Column("strategy", lambda row: row.cell),
        Column("mesh", lambda row: str(row.run.mesh), gives_way=5),
        of("state", lambda row: row.ledger.state_bytes, STATE_OF_A_DEVICE),
        of("(textbook)", lambda row: row.textbook("state"), "(by the textbook)", gives_way=4, is_detail=True),
        of("gathered", lambda row: row.fullest.params_peak_bytes - row.fullest.params_bytes, _GATHERED, 3),
        of("activations", lambda row: row.fullest.activations_bytes, _ACTIVATIONS, 3),
        of("needed", lambda row: row.needed_bytes, _NEEDED),
        *((fits,) if found.memory else ()),
        of("sent", lambda row: row.sent_bytes_per_device, "by each device in a step, on average", 1),
        of("all send", lambda row: row.ledger.sent_bytes_per_step, "all devices together", 2),
    )


_GATHERED = "copies of parameters that exist only within a step"
_ACTIVATIONS = "kept between forward and backward pass; empty: not predicted"
_NEEDED = "all of that on one device, each at its peak; buffers and the framework come on top"


def _in_bytes(
    rows: Sequence[Prediction],
    header: str,
    value: Callable[[Prediction], float | None],
    meaning: str = "",
    gives_way: int = 0,
    is_detail: bool = False,
) -> Column[Prediction]:
    """Returns a column of bytes, in one unit for all rows."""
    unit = common_unit(value(row) or 0 for row in rows)

    def write_one(row: Prediction) -> str:
        count = value(row)
        text = "" if count is None else in_unit(count, unit)
        return f"({text})" if text and is_detail else text

    return Column(header if is_detail else f"{header} {unit}", write_one, meaning, gives_way, is_detail)


def _figures(row: Prediction, memory: int | None) -> dict[str, Scalar]:
    """Returns the columns for programs: of the device that needs most, and of all together."""
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
        **{"weights": row.run.weights, "precision": row.run.techniques.precision},
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
