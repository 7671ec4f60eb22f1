"""The section on the speeds of rows, with intervals; rows that are not separated are not ranked."""

from markupsafe import Markup

from samestep.common.errors import count
from samestep.common.judging.speed_comparison import NOT_SEPARATED
from samestep.experiments.comparing.quantities import SPEED, VERDICT
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.page.axes import AxisScale, fitting, spell_tick
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.plots import Line, Mark, Plot, mark, render_figures
from samestep.experiments.printing.columns import range_of, spell_range


def write(loaded: Loaded) -> Markup | None:
    """Makes the section."""
    return render_figures(loaded, "speed", plot)


def plot(facet: Facet) -> Plot | None:
    """Makes the figure of a facet; None if no row was timed."""
    timed = [
        (row.speed.prediction.median, entry, row)
        for entry, _ in facet.rows
        if (row := entry.measured) and row.speed.prediction
    ]
    if not timed:
        return None
    timed.sort(key=lambda line: -line[0])
    ends = [end for median, _, row in timed for end in (median, *(range_of(row) or ()))]
    axis = fitting(ends, spell_tick)
    drawn = [Line(entry, _marks(axis, median, entry, row), _said(row)) for median, entry, row in timed]
    alt = (
        f"Examples per second of {count(len(timed), 'row')}, {facet.title}; {timed[0][1].name} has the largest median."
    )
    unit = "examples per second" + (", logarithmic" if axis.is_log else "")
    return Plot(alt, facet.title, axis, unit, drawn, "examples per second")


def _marks(axis: AxisScale, median: float, entry: Entry, row: MeasuredRow) -> list[Mark]:
    dot = mark(f"dot {entry.framework}", axis, median, data={"data-value": median})
    if (ends := range_of(row)) is None:
        return [dot]
    kind = "interval" if row.speed.prediction and row.speed.prediction.low is not None else "spread"
    return [mark(f"{kind} {entry.framework}", axis, *ends, data={"data-low": ends[0], "data-high": ends[1]}), dot]


def _said(row: MeasuredRow) -> dict[str, object]:
    """Returns the numbers next to a line, and the verdict against the reference."""
    kind = "quiet" if row.speed.verdict == NOT_SEPARATED or row.speed.confounds else "plain"
    return {"median": SPEED.text(row), "range": spell_range(row), "verdict": VERDICT.text(row), "kind": kind}
