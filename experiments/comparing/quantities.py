"""The quantities by which results are compared. Each is defined once, here, for every table, page, format and tracker."""

from samestep.common.ledger import STATE_OF_A_DEVICE
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.step_parts import PARTS
from samestep.common.workload.table import title
from samestep.experiments.comparing.quantity import Quantity
from samestep.experiments.comparing.speeds import MeasuredRow, devices
from samestep.experiments.printing.text import short, spell


def _trained(row: MeasuredRow) -> str:
    return title(row.result.workload, row.result.config.data)


def _median(row: MeasuredRow) -> float | None:
    return row.speed.prediction.median if row.speed.prediction else None


def _deviation(row: MeasuredRow) -> float | None:
    return None if row.result.parity.passed is None else row.result.parity.max_relative_loss


def _percentiles(row: MeasuredRow) -> str:
    """p50, p95 and p99 of the step in milliseconds; "-" stands for one that needs more steps."""
    found = row.speed.step_seconds.values()
    return " ".join("-" if each is None else short(1000 * each) for each in found) if any(found) else ""


def same_step(result: RunResult) -> str:
    """Returns in a word whether a run took the same step, with the number of judged steps if not all were judged."""
    if result.parity.passed is None:
        from samestep.experiments.comparing.row import status_of  # here: most runs are judged

        return status_of(result)
    judged, taken = result.parity.steps, len(result.losses)
    partly = f", {judged} of {taken}" if judged < taken else ""
    how = ", amplified" if result.parity.is_amplified else ""
    return f"yes{how}{partly}" if result.parity.passed else "NO"


SAME_STEP = Quantity(
    name="same step",
    meaning="whether the loss equals the reference's, except for rounding, at every step that was judged",
    key="parity_passed",
    tracked_as="took_the_same_step",
    of_row=lambda row: row.result.parity.passed,
    write=lambda row: same_step(row.result),
    is_of_a_step=False,
)
SPEED = Quantity(
    name="examples/s",
    meaning="the median of the run's timed windows",
    key="examples_per_second_median",
    tracked_as="median_examples_per_second",
    of_row=_median,
    write=lambda row: "" if (median := _median(row)) is None else short(median),
    better="more",
)
VERDICT = Quantity(
    name="verdict",
    title="against reference",
    meaning="examples/s as a multiple of the reference row's in the same round",
    key="against_reference_ratio",
    of_row=lambda row: row.speed.against.ratio if row.speed.against else None,
    write=lambda row: row.speed.verdict,
    better="more",
)
STATE = Quantity(
    name="state",
    title="state of a device",
    unit="bytes",
    meaning=STATE_OF_A_DEVICE,
    key="state_bytes_per_device",
    tracked_as="state_bytes_of_a_device",
    in_ledger=lambda ledger: ledger.state_bytes,
    better="less",
    drop_priority=2,
)
SENT = Quantity(
    name="sent",
    title="sent a step",
    unit="bytes",
    meaning="what all processes put on the wire in a step; between the devices of one process there is no wire",
    key="sent_bytes_per_step",
    tracked_as="sent_bytes_per_step",
    in_ledger=lambda ledger: ledger.sent_bytes_per_step,
    is_lower_bound=lambda result: bool(result.uncounted),
    better="less",
    drop_priority=3,
)
METRIC = Quantity(
    name="metric",
    key="metric_value",
    of_row=lambda row: row.result.metric_value,
    write=lambda row: spell(row.result.metric_value, ".4g"),
    is_often_shared=True,
    is_of_a_step=False,
    drop_priority=6,
)
STARTUP = Quantity(
    name="start-up",
    title="start-up, s",
    unit="s",
    meaning="from the start of the run to the start of its first step",
    key="startup_seconds",
    of_row=lambda row: row.result.startup_seconds,
    write=lambda row: f"{row.result.startup_seconds:.2f}",
    better="less",
    drop_priority=7,
)
WORKLOAD = Quantity(
    name="workload",
    meaning="what is trained",
    key="workload",
    of_row=_trained,
    write=_trained,
    in_terminal=False,
    is_of_a_step=False,
)
_PARTS = {
    "computing": "operators ran, including those of the update where they cannot be told apart",
    "update": "operators of the update ran",
    "waiting": "blocked until an exchange is done, or until another process has caught up",
    "idle": "ready to run but without a core, or blocked in a run of one process",
    "Python": "on a core but in no operator: Python and the framework's bookkeeping",
}
STEP_PARTS = tuple(
    Quantity(
        name=name,
        on_page=False,
        unit="s",
        meaning=meaning,
        key=f"step_parts_{part}",
        of_row=lambda row, part=part: getattr(row.result.step_parts, part, None),
        in_terminal=False,
    )
    for part, (name, meaning) in zip(PARTS, _PARTS.items(), strict=True)
)
"""The parts of the median step, in seconds; their sum is that step."""
NO_PARTS = "the parts of its step were not measured"
QUANTITIES = (
    SAME_STEP,
    Quantity(
        name="largest deviation",
        meaning="the largest relative deviation of a loss from the reference's",
        key="parity_max_relative_loss",
        tracked_as="largest_relative_loss_deviation",
        of_row=_deviation,
        write=lambda row: spell(_deviation(row), ".1e"),
        better="less",
        in_terminal=False,
    ),
    SPEED,
    VERDICT,
    Quantity(
        name="step ms p50 p95 p99",
        on_page=False,
        meaning="the times that 50, 95 and 99 of 100 steps did not exceed; - needs more steps",
        key="step_seconds_median",
        tracked_as="step_seconds_median",
        of_row=lambda row: row.result.step_seconds_median,
        write=_percentiles,
        better="less",
        is_always_measured=False,
        drop_priority=8,
    ),
    STATE,
    SENT,
    Quantity(
        name="activations",
        unit="bytes",
        meaning="the most kept between the forward and the backward pass, on the device that keeps the most",
        key="activations_bytes_per_device",
        tracked_as="activations_bytes_of_a_device",
        in_ledger=lambda ledger: ledger.activations_bytes,
        better="less",
        is_always_measured=False,
        drop_priority=6,
    ),
    Quantity(
        name="devices",
        key="devices",
        of_row=lambda row: row.result.config.devices,
        write=lambda row: devices(row.result),
        is_often_shared=True,
        is_of_a_step=False,
    ),
    Quantity(
        name="dtype",
        key="dtype",
        of_row=lambda row: row.result.dtype,
        write=lambda row: row.result.dtype,
        is_often_shared=True,
        is_of_a_step=False,
    ),
    METRIC,
    STARTUP,
    WORKLOAD,
    Quantity(
        name="peak RSS",
        on_page=False,
        unit="bytes",
        meaning="the most memory that one process has used, including the framework",
        key="peak_rss_bytes",
        of_row=lambda row: max((each.peak_rss_bytes for each in row.result.processes), default=None),
        better="less",
        in_terminal=False,
    ),
    *STEP_PARTS,
)
"""All quantities, in the order of tables and the page."""
