"""The results of the checks on the GPUs of a machine: a table, and a report that can be attached to an issue."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from samestep.common.flags import Scalar
from samestep.common.judging.repetition import EQUAL, compare_losses
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.experiments.advising.prediction import needed_bytes
from samestep.experiments.advising.step_times import candidate_of, seconds_of
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.quantities import SAME_STEP, SENT, STATE
from samestep.experiments.comparing.quantity import MARK, Quantity
from samestep.experiments.comparing.row import Row, explain_rows
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.doctoring.checks import Gpu
from samestep.experiments.printing.column_table import Column, explained
from samestep.experiments.printing.formats import Document
from samestep.experiments.printing.text import paragraphs, size


@dataclasses.dataclass(frozen=True)
class Check:
    """The check of one row.

    Attributes:
        row: The row of the comparison, which has a result.
        gpu: The GPU that it was requested for.
    """

    row: Row
    gpu: Gpu

    @property
    def result(self) -> RunResult:
        """The result of its first round."""
        assert self.row.result is not None
        return self.row.result

    @property
    def is_on_gpu(self) -> bool:
        """Whether all its devices were GPUs."""
        return all("cpu" not in each.device.lower() for each in self.result.processes)

    @property
    def repeats(self) -> bool | None:
        """Whether its rounds have the same losses in every bit; None if there is one round."""
        first, *others = self.row.results
        found = [compare_losses(each.dtype, each.first_step, each.losses, first.losses).verdict for each in others]
        return all(verdict == EQUAL for verdict in found) if found else None

    @property
    def allocated_peak_bytes(self) -> int | None:
        """The most bytes of tensors that the allocator of a GPU held in the observed step."""
        peaks = [each.allocated_peak_bytes for each in self.result.processes if each.allocated_peak_bytes is not None]
        return max(peaks, default=None)

    @property
    def predicted_peak_bytes(self) -> int | None:
        """The predicted peak: all classes of memory at their peaks at once, without gradients of activations.

        None if the activations of a device are not predicted.
        """
        ledger = self.result.predicted
        return None if ledger.activations_bytes is None else max(map(needed_bytes, ledger.footprints))

    @property
    def advised_seconds(self) -> float | None:
        """The seconds of a two-byte step by `samestep advise`; None if it does not know the GPU or rank the strategy."""
        machine, run = self.gpu.machine, parse(self.result.config)
        candidate = candidate_of(run, max(map(needed_bytes, self.result.predicted.footprints)))
        if machine is None or candidate is None or run.product_bytes == run.item_bytes:
            return None
        return seconds_of(candidate, machine).total


def _beside_prediction(quantity: Quantity) -> Callable[[Check], str]:
    """Returns a function that writes a quantity of a check with its prediction."""

    def write(check: Check) -> str:
        measured = quantity.text(MeasuredRow.of(check.result))
        return f"{measured} ({size(quantity.predicted(check.result))}){quantity.miss(check.result) and MARK}"

    return write


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.3g}"


COLUMNS: tuple[Column[Check], ...] = (
    Column("row", lambda check: check.row.cell),
    Column("device", lambda check: check.result.processes[0].device if check.is_on_gpu else "CPU cores"),
    Column("backend", lambda check: check.result.backend, drop_priority=3),
    Column("same step", lambda check: SAME_STEP.text(MeasuredRow.of(check.result))),
    Column(
        "repeats",
        lambda check: {True: "yes", False: "no", None: ""}[check.repeats],
        "whether two runs have the same losses in every bit",
    ),
    Column("state", _beside_prediction(STATE), "of a device, with its prediction", drop_priority=1),
    Column(
        "allocated",
        lambda check: f"{size(check.allocated_peak_bytes)} ({size(check.predicted_peak_bytes)})".removesuffix(" ()"),
        "the most bytes of tensors in a step, and what prediction counts of them: gradients of activations are not among it",
    ),
    Column("sent", _beside_prediction(SENT), "in a step over TCP, with its prediction", drop_priority=2),
    Column("ms", lambda check: _milliseconds(check.result.step_seconds_median), "the median step"),
    Column("advised", lambda check: _milliseconds(check.advised_seconds), "what samestep advise says of it", 4),
)


def document(found: Comparison, gpus: Mapping[str, Sequence[Gpu]]) -> Document:
    """Makes what `samestep doctor --gpu` prints.

    Args:
        found: The comparison of all checks.
        gpus: The GPUs that each framework sees.
    """
    checks = [
        Check(row, gpus[row.configuration.framework][0])
        for row in found.rows
        if row.result and not row.configuration.is_oracle
    ]
    rows = [_record(check) for check in checks]
    elsewhere = [check.row.cell for check in checks if not check.is_on_gpu]

    def text() -> str:
        lines = [f"on CPU cores, since each rank has to have a GPU: {', '.join(elsewhere)}"] if elsewhere else []
        seen = "\n".join(f"{framework} sees {say_gpus(each)}." for framework, each in gpus.items())
        return paragraphs(seen, explained(COLUMNS, checks, [*lines, *explain_rows(found.rows)]))

    return Document(
        "samestep doctor --gpu",
        text,
        {
            "gpus": gpus,
            "machine": checks[0].result.machine if checks else {},
            "versions": {name: version for check in checks for name, version in check.result.versions.items()},
            "rows": rows,
            "not_run": {row.cell: f"{row.status}: {row.reason}" for row in found.rows if not row.result},
        },
        rows,
        [row.case() for row in found.rows if not row.configuration.is_oracle],
    )


def say_gpus(gpus: Sequence[Gpu]) -> str:
    """Returns what a framework sees, in words."""
    return (
        ", ".join(each.name + (f" ({size(each.memory_bytes)})" if each.memory_bytes else "") for each in gpus)
        or "no GPU"
    )


def _record(check: Check) -> dict[str, Scalar]:
    result = check.result
    return {
        "cell": check.row.cell,
        "devices": result.config.devices,
        "device": check.result.processes[0].device,
        "is_on_gpu": check.is_on_gpu,
        "backend": result.backend,
        "emulation": result.emulation,
        "status": check.row.status,
        "largest_deviation": result.parity.max_relative_loss,
        "repeats_bit_for_bit": check.repeats,
        "state_bytes": result.state_bytes,
        "predicted_state_bytes": STATE.predicted(result),
        "allocated_peak_bytes": check.allocated_peak_bytes,
        "predicted_peak_bytes": check.predicted_peak_bytes,
        "sent_bytes": result.sent_bytes,
        "predicted_sent_bytes": SENT.predicted(result),
        "step_seconds": result.step_seconds_median,
        "advised_step_seconds": check.advised_seconds,
    }
