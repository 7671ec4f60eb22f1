"""Figures of records: curves by step, and the projections of two records against each other."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from samestep.common.errors import count
from samestep.common.frameworks import FRAMEWORKS
from samestep.common.judging.recorded.differences import THRESHOLD
from samestep.experiments.page.axes import AxisScale, linear, logarithmic
from samestep.experiments.page.curves import Panel, Place, curve, dot, thin
from samestep.experiments.page.records.gathered import GatheredPair, GatheredRecord, ShownTensor
from samestep.experiments.printing.diff_report import differing_first

GREY, FIRST, SECOND, *_ = FRAMEWORKS
"""The colours of the page, which elsewhere belong to frameworks."""
KINDS = {"A": GREY, "B": FIRST, "loss": GREY, "gradient": FIRST, "weight": SECOND}
"""Name of a curve -> its class in the style sheet."""
MOST_TENSORS = 40
"""The most tensors on a panel of projections; those that differ come first."""
_LEAST_TIMES = 1e-2


@dataclasses.dataclass(frozen=True)
class RecordFigure:
    """A figure of records.

    Attributes:
        title: The title above it.
        meaning: How to read it.
        key: The class of each mark, and its meaning.
        panel: The figure itself.
    """

    title: str
    meaning: str
    key: Sequence[tuple[str, str]]
    panel: Panel

    @property
    def alt(self) -> str:
        """A description, for readers who cannot see the figure."""
        return self.panel.alt


def loss_figure(losses: Mapping[str, Sequence[Place]]) -> RecordFigure | None:
    """Draws losses by step.

    Args:
        losses: Name of a curve -> its points.
    """
    meaning = "The loss of every step: the sum over the micro-batches of a rank, then the mean over the ranks."
    return _by_step("Loss", meaning, "loss", losses, lambda values: linear(values, _number, from_zero=False))


def single_figures(record: GatheredRecord) -> list[RecordFigure]:
    """Draws the curves of one record."""
    name = record.directory.name
    norms = "The norm of all gradients together, as the optimizer was given them."
    rates = "The learning rate of the first group of the optimizer."
    drawn = [
        loss_figure({name: record.losses}),
        _by_step("Gradient", norms, "norm, logarithmic", {name: record.norms}, lambda v: logarithmic(v, _power)),
        _by_step("Learning rate", rates, "rate", {name: record.rates}, lambda v: linear(v, _number)),
    ]
    return [each for each in drawn if each is not None]


def rounding_figure(pair: GatheredPair) -> RecordFigure | None:
    """Draws how far two records are apart in each step, as a multiple of the difference that rounding makes."""
    points = {
        name: [(step, max(min(times, 1e30), _LEAST_TIMES)) for step, times in found]
        for name, found in pair.times.items()
    }

    def axis(values: Sequence[float]) -> AxisScale:
        whole = logarithmic([*values, THRESHOLD, _LEAST_TIMES], _power)
        return AxisScale(whole.low, whole.high, lambda v: "equal" if v <= _LEAST_TIMES else _power(v), is_log=True)

    meaning = (
        "The largest difference of any tensor, divided by what rounding alone makes of it at this step. Below the dashed line it "
        "is rounding. Weights that have come apart stay apart."
    )
    levels = [(THRESHOLD, "more than rounding")]
    return _by_step("Difference by step", meaning, "x rounding, logarithmic", points, axis, levels)


def projection_figure(pair: GatheredPair) -> RecordFigure | None:
    """Draws the projections of B's tensors against those of A's, each in units of the tensor's norm in A."""
    drawn = [each for each in most_telling(pair.tensors) if not each.is_rounding]
    if not drawn:
        return None
    points = {
        each.name: [(float(x) / each.norm, float(y) / each.norm) for x, y in zip(each.one, each.other, strict=True)]
        for each in drawn
    }
    values = [value for found in points.values() for point in found for value in point if math.isfinite(value)]
    axis = linear(values, _number, from_zero=False)
    axes = (axis, axis)
    dots = [
        dot(
            axes,
            point,
            "bad" if each.differs else FIRST,
            data={"data-value": point[1], "data-at": point[0], "title": each.name},
        )
        for each in drawn
        for point in points[each.name]
        if all(map(math.isfinite, point))
    ]
    line = curve(axes, [[(axis.low, axis.low), (axis.high, axis.high)]], "ideal", "B equals A")
    what = "gradient" if pair.phase == "gradient" else "weights"
    left = len([each for each in pair.tensors if each.norm and not each.is_rounding]) - len(drawn)
    meaning = (
        f"Each tensor's {what} at step {pair.step} as eight projections, in units of the tensor's norm in A. On the dashed "
        "line, B equals A. Along another line, B is a multiple of A; scattered points mean that it is not."
        + (f" {count(left, 'more tensor')} {'is' if left == 1 else 'are'} not drawn." if left > 0 else "")
    )
    alt = f"{count(len(dots), 'projection')} of {count(len(drawn), 'tensor')}, B by A."
    key = [(FIRST, "within rounding"), ("bad", "differs")]
    panel = Panel(axis, axis, ("A", "B"), alt, [line], dots=dots)
    return RecordFigure(f"Projections at step {pair.step}", meaning, key, panel)


def most_telling(tensors: Sequence[ShownTensor]) -> list[ShownTensor]:
    """Returns the tensors that are drawn, in the order of the model: those that differ, then others if there is room."""
    there = [each for each in tensors if each.norm]
    return [there[place] for place in differing_first([each.differs for each in there], MOST_TENSORS)]


def _by_step(
    title: str,
    meaning: str,
    unit: str,
    found: Mapping[str, Sequence[Place]],
    axis: Callable[[Sequence[float]], AxisScale],
    levels: Sequence[tuple[float, str]] = (),
) -> RecordFigure | None:
    """Draws curves by step; None if there is nothing to draw."""
    drawn = {name: [each for each in points if math.isfinite(each[1])] for name, points in found.items()}
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return None
    across = linear([x for points in drawn.values() for x, _ in points], lambda v: f"{v:,.0f}", from_zero=False)
    up = axis([y for points in drawn.values() for _, y in points])
    kinds = {name: KINDS.get(name, FIRST) for name in drawn}
    curves = [
        curve((across, up), [thin(points)], kinds[name], f"{name}: from {points[0][1]:.4g} to {points[-1][1]:.4g}")
        for name, points in drawn.items()
    ]
    ends = ", ".join(f"{name} {points[-1][1]:.4g}" for name, points in drawn.items())
    alt = f"{title.removesuffix(' by step')} by step, {count(len(drawn), 'curve')}. At the last step: {ends}."
    key = [(kinds[name], name) for name in drawn]
    return RecordFigure(title, meaning, key, Panel(across, up, ("step", unit), alt, curves, levels))


def _number(value: float) -> str:
    return f"{value:g}"


def _power(value: float) -> str:
    return f"{value:g}" if 1e-3 <= value < 1e5 else f"{value:.0e}"
