"""The section on how the time of a step is spent: a stacked bar for each row, all on one scale, and why rows are slow."""

import itertools
from collections.abc import Sequence

from markupsafe import Markup

from samestep.common.errors import count, percent
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.step_parts import PARTS
from samestep.experiments.comparing.quantities import NO_PARTS, STEP_PARTS
from samestep.experiments.page.axes import AxisScale, multiplied
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.memory import UNKNOWN
from samestep.experiments.page.plots import Line, Mark, Plot, mark, render_figures
from samestep.experiments.printing.columns import is_faster
from samestep.experiments.printing.text import short

_SLOWER = 1.5
"""A row gets a sentence if its step takes at least this multiple of the fastest row's."""
_MOST_SAID = 4
_LEAST_SHARE = 0.1
"""The least share of a step for a part to be named."""
_NAMES = dict(zip(PARTS, STEP_PARTS, strict=True))


def write(loaded: Loaded) -> Markup | None:
    """Makes the section."""
    said = {facet.title: list(sentences(facet)) for facet in loaded.facets()}
    return render_figures(loaded, "step_parts", plot, {"swatches": swatches(loaded.results), "said": said})


def swatches(results: Sequence[RunResult]) -> list[tuple[str, str]]:
    """Returns the kinds of marks, with what they mean.

    Args:
        results: The results of the rows that are drawn.
    """
    found = [(_kind(quantity.name), f"{quantity.name}: {quantity.meaning}") for quantity in STEP_PARTS]
    if any(result.step_seconds_median and not result.step_parts for result in results):
        found.append((UNKNOWN, "not told apart"))
    return found


def _kind(part: str) -> str:
    return part.lower()


def _timed(facet: Facet) -> list[tuple[float, Entry, RunResult]]:
    """Returns the median seconds of the steps of each row that has them, the fastest first."""
    timed = [(result.step_seconds_median, entry, result) for entry, result in facet.rows if result.step_seconds_median]
    return sorted(timed, key=lambda line: line[0])


def plot(facet: Facet) -> Plot | None:
    """Makes the figure of a facet; None if the parts of no row's step are known."""
    timed = _timed(facet)
    if not any(result.step_parts for *_, result in timed):
        return None
    slowest = timed[-1]
    axis = multiplied([slowest[0]], 1000)
    drawn = [Line(entry, _marks(axis, result), _said(result)) for _, entry, result in timed]
    alt = (
        f"What the seconds of a step go to in {count(len(timed), 'row')}, {facet.title}; "
        f"the longest bar, {short(1000 * slowest[0])} ms, is of {slowest[1].name}."
    )
    return Plot(alt, facet.title, axis, "milliseconds of the median step", drawn, "seconds")


def _marks(axis: AxisScale, result: RunResult) -> list[Mark]:
    parts = parts_of(result)
    if not parts:
        whole = result.step_seconds_median or 0.0
        return [mark(f"bar measured {UNKNOWN}", axis, 0.0, whole, {"data-value": float(f"{whole:.4g}")})]
    ends = list(itertools.accumulate(parts.values(), initial=0.0))
    places = zip(parts.items(), ends, ends[1:], strict=False)
    return [
        mark(f"bar measured {_kind(name)}", axis, start, end, {"data-value": float(f"{part:.4g}")}, name)
        for (name, part), start, end in places
        if part
    ]


def parts_of(result: RunResult) -> dict[str, float]:
    """Returns the seconds of each part of a step by name, in the order of the bar; empty if they were not told apart.

    Args:
        result: The result of a run.
    """
    found = result.step_parts
    return {_NAMES[n].name: seconds for n in PARTS if (seconds := getattr(found, n)) is not None} if found else {}


def _said(result: RunResult) -> dict[str, object]:
    """Returns the time of the whole step, and the two largest parts."""
    whole = f"{short(1000 * (result.step_seconds_median or 0.0))} ms"
    return {"whole": whole, "parts": shares(result, 2) or why_not(result)}


def why_not(result: RunResult) -> str:
    """Returns why the parts of a run's step are not told apart."""
    return f"not told apart: {result.no_parts or NO_PARTS}"


def shares(result: RunResult, most: int) -> str:
    """Returns the largest parts of a step, as in "71 % waiting, 12 % computing".

    Args:
        result: The result of a run.
        most: The most parts to name; small ones are left out.
    """
    parts = parts_of(result)
    whole = sum(parts.values())
    largest = sorted(parts.items(), key=lambda part: -part[1])[:most]
    return ", ".join(
        f"{percent(seconds / whole)} {name}" for name, seconds in largest if seconds >= _LEAST_SHARE * whole
    )


def sentences(facet: Facet) -> list[str]:
    """Returns why the slowest rows are slow, except those that may be as fast as the fastest one.

    Args:
        facet: The rows; the oracle, which is not a strategy, is left out.
    """
    timed = [line for line in _timed(facet) if not line[1].row.configuration.is_oracle and line[2].step_parts]
    slower = [line for line in timed[1:] if line[0] >= _SLOWER * timed[0][0] and _is_faster(timed[0][1], line[1])]
    return [_sentence(timed[0], line) for line in slower[::-1][:_MOST_SAID]]


def _is_faster(fast: Entry, slow: Entry) -> bool:
    row, other = fast.measured, slow.measured
    return row is not None and other is not None and is_faster(row, other)


def _sentence(fast: tuple[float, Entry, RunResult], slow: tuple[float, Entry, RunResult]) -> str:
    """Returns how much longer a step is, its parts, and the part with most of the difference."""
    (fast_seconds, fast_entry, fast_result), (seconds, entry, result) = fast, slow
    here, there = parts_of(result), parts_of(fast_result)
    more = {name: part - there.get(name, 0.0) for name, part in here.items()}
    most = max(more, key=lambda name: more[name])
    others = [name for name in sorted(here, key=lambda name: -here[name]) if name != most][:1]
    named = [name for name in (most, *others) if name == most or here[name] >= _LEAST_SHARE * seconds]
    spent = [(percent(here[name] / seconds), _doing(name, result)) for name in named]
    (share, doing), *rest = spent
    return (
        f"A step of {entry.name} takes {short(seconds / fast_seconds)} times as long as one of {fast_entry.name}. "
        f"Of that, {share} is spent {doing}{''.join(f' and {also} {so}' for also, so in rest)}."
    )


_DOING = {"update_seconds": "on the update", "python_seconds": "in Python"}
"""Part of a step -> the words for it in a sentence, if its name does not fit there."""


def _doing(part: str, result: RunResult) -> str:
    """Returns the words for a part in a sentence. The number of transfers is that of the first process in the observed step."""
    if part == _NAMES["waiting_seconds"].name:
        number = sum(send.count for send in result.processes[0].sends)
        return f"waiting for {count(number, 'transfer') if number else 'other processes'}"
    return {_NAMES[name].name: words for name, words in _DOING.items()}.get(part, part)
