"""How fast rows are, with intervals: what is not separated is not ranked."""

from xml.etree.ElementTree import Element

from samestep.common.judging.comparison import NOT_SEPARATED
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.speeds import Speed
from samestep.experiments.page.axes import Axis, fitting, spell_tick
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.markup import Child, element
from samestep.experiments.page.plots import FRAMEWORKS, Line, figure, for_facets, key, lines, mark, meaning
from samestep.experiments.printing.speed_columns import Timed, range_of, spell_range
from samestep.experiments.printing.text import short

_MEANING = (
    "The dot is the median. A bar is the 95 % prediction interval: where the median of a later comparison with as "
    "many rounds lies. A dashed line is of a single run, from its slowest window to its fastest; another run may "
    "lie outside. Without a bar there are too few rounds to say. Do not read off the bars whether two rows differ: "
    "the verdict compares them within each round. In parentheses stands what differs beside the strategy, so that "
    "the row is not ranked."
)


def write(loaded: Loaded) -> Element | None:
    """Makes the section."""
    return for_facets(loaded, _figure, meaning(_MEANING), key(*FRAMEWORKS))


def _figure(facet: Facet) -> Element | None:
    timed = [
        (found.median, entry, result, entry.speed)
        for entry, result in facet.rows
        if entry.speed and (found := entry.speed.prediction)
    ]
    if not timed:
        return None
    timed.sort(key=lambda row: -row[0])
    ends = [end for median, _, result, speed in timed for end in (median, *(range_of(Timed(result, speed)) or ()))]
    axis = fitting(ends, spell_tick)
    drawn = [
        Line(entry, _marks(axis, median, entry, result, speed), _said(median, result, speed))
        for median, entry, result, speed in timed
    ]
    alt = f"Examples per second of {len(timed)} rows, {facet.title}; {timed[0][1].name} has the largest median."
    unit = "examples per second" + (", logarithmic" if axis.is_log else "")
    return figure(alt, facet.title, lines(axis, unit, drawn), class_="speed")


def _marks(axis: Axis, median: float, entry: Entry, result: RunResult, speed: Speed) -> list[Element]:
    kind = "interval" if speed.prediction and speed.prediction.low is not None else "spread"
    ends = range_of(Timed(result, speed))
    bars = [mark(f"{kind} {entry.framework}", axis, *ends, data_low=ends[0], data_high=ends[1])] if ends else []
    return [*bars, mark(f"dot {entry.framework}", axis, median, data_value=median)]


def _said(median: float, result: RunResult, speed: Speed) -> list[Child]:
    """The numbers, and the verdict against the reference."""
    kind = "quiet" if speed.verdict == NOT_SEPARATED or speed.confounds else "plain"
    return [
        element("b", short(median)),
        element("small", f" {spell_range(Timed(result, speed))}"),
        element("span", speed.verdict, class_=f"against {kind}"),
    ]
