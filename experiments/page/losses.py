"""The losses of every step, and below them how far each is from the reference's, on a logarithmic scale."""

import itertools
import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from samestep.common.errors import count
from samestep.common.judging.parity import bound_of
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.axes import AxisScale, linear, logarithmic
from samestep.experiments.page.curves import MOST_POINTS, Panel, Place, curve, thin
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.plots import Numbers, render_figures

Rows = Sequence[tuple[Entry, RunResult]]
_POINTS_OF_ALL, _FEWEST_POINTS = 2400, 40
"""The most points of all curves of a panel together, and the least number of points of a curve."""


def write(loaded: Loaded) -> Markup | None:
    """Makes the section."""
    return render_figures(loaded, "losses", _figure)


def _figure(facet: Facet) -> dict[str, object] | None:
    rows = [(entry, result) for entry, result in facet.rows if result.losses]
    if not rows:
        return None
    drawn = dict(panels(facet))
    return {
        "alt": f"Losses of {count(len(rows), 'row')} over {count(_end(rows), 'step')}, {facet.title}, and their deviations from "
        "the reference.",
        "title": facet.title,
        "losses": drawn["losses"],
        "deviations": drawn.get("deviations"),
        "numbers": _numbers(rows),
    }


def panels(facet: Facet) -> Iterator[tuple[str, Panel]]:
    """Yields the panel of losses, and the panel of deviations if there are any, each with its name."""
    rows = [(entry, result) for entry, result in facet.rows if result.losses]
    if not rows:
        return
    steps = [result.first_step for _, result in rows] + [_end(rows) - 1]
    across = linear(steps, lambda v: f"{v:,.0f}", from_zero=False)
    yield "losses", _losses(across, rows)
    if (deviations := _deviations(across, rows)) is not None:
        yield "deviations", deviations


def _numbers(rows: Rows) -> Numbers:
    """Returns the first and last loss of each curve, and its largest deviation from the reference's."""
    headers = ["first loss", "last loss", "largest relative deviation", "at step"]
    found = []
    for entry, result in rows:
        deviations = dict(enumerate(result.parity.deviations or (), result.first_step))
        worst = max(deviations, key=lambda step: _or_infinity(deviations[step]), default=None)
        most = "" if worst is None else f"{_or_infinity(deviations[worst]):.1e}"
        ends = [f"{result.losses[place]:.6g}" for place in (0, -1)]
        found.append((entry.name, [*ends, most, "" if worst is None else str(worst)]))
    return Numbers(headers, found)


def _or_infinity(value: float | None) -> float:
    """Returns a deviation, with infinity in place of None and NaN."""
    return math.inf if value is None or math.isnan(value) else value


def _end(rows: Rows) -> int:
    return max(result.first_step + len(result.losses) for _, result in rows)


def _losses(across: AxisScale, rows: Rows) -> Panel:
    up = linear((loss for _, result in rows for loss in result.losses), lambda v: f"{v:g}", from_zero=False)
    curves = []
    for entry, result in sorted(rows, key=_emphasis):
        parts = _parts(result.losses, result.first_step, len(rows))
        said = f"{entry.name}: from {result.losses[0]:.4g} to {result.losses[-1]:.4g}"
        curves.append(curve((across, up), parts, _kind(entry, result), said, entry.key))
    ends = ", ".join(dict.fromkeys(f"{result.losses[-1]:.4g}" for _, result in rows))
    alt = f"Loss by step. Last losses: {ends[:200]}."
    return Panel(across, up, ("step", "loss"), alt, curves)


def _deviations(across: AxisScale, rows: Rows) -> Panel | None:
    judged = [(entry, result) for entry, result in rows if result.parity.deviations]
    if not judged:
        return None
    bounds = {result.arithmetic: bound_of(result.parity, result.dtype) for _, result in judged}
    values = [value for _, result in judged for value in result.parity.deviations if value]
    axis = logarithmic([*values, *bounds.values()], lambda v: f"{v:.0e}")
    up = AxisScale(axis.low / 10, axis.high, lambda v: "equal" if v < axis.low * 0.99 else f"{v:.0e}", is_log=True)
    curves = []
    for entry, result in sorted(judged, key=_emphasis):
        said = f"{entry.name}: at most {result.parity.max_relative_loss or 0:.1e} in {result.arithmetic}"
        parts = _parts(result.parity.deviations, result.first_step, len(judged))
        curves.append(curve((across, up), parts, _kind(entry, result), said, entry.key))
    levels = [(bound, f"allowed in {dtype}: {bound:.0e}") for dtype, bound in bounds.items()]
    worst = max((result.parity.max_relative_loss or 0.0 for _, result in judged), default=0.0)
    alt = f"Relative deviation of the loss by step, logarithmic; the largest is {worst:.1e}."
    return Panel(across, up, ("step", "relative deviation, logarithmic"), alt, curves, levels)


def _parts(values: Sequence[float | None], first: int, rows: int) -> list[list[Place]]:
    """Returns the thinned parts of a curve, between which values are not finite; many rows get fewer points each."""
    most = max(_FEWEST_POINTS, min(MOST_POINTS, _POINTS_OF_ALL // rows))
    points = [(step, math.nan if value is None else value) for step, value in enumerate(values, first)]
    found = itertools.groupby(points, lambda point: math.isfinite(point[1]))
    return [thin([*part], most) for is_finite, part in found if is_finite]


def _kind(entry: Entry, result: RunResult) -> str:
    return "bad" if result.parity.passed is False else entry.framework


def _emphasis(row: tuple[Entry, RunResult]) -> int:
    """Returns a sort key for drawing: the reference first, below the others, and rows that missed parity last, on top."""
    _, result = row
    return 0 if result.is_oracle else 2 if result.parity.passed is False else 1
