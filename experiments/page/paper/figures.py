"""The figures of a report, by name, for notebooks and as files in the two widths of a paper."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from samestep.common.errors import ConfigError, unknown
from samestep.common.files.writing import replacing
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.page import losses, memory, observed, scaling, speed, step_parts, wire
from samestep.experiments.page.drawings.svg import file_of
from samestep.experiments.page.drawings.trade import trade
from samestep.experiments.page.loaded import Facet, Loaded
from samestep.experiments.page.loading import loaded_comparison
from samestep.experiments.page.paper.charts import Key, chart, graph
from samestep.experiments.page.paper.figure_parts import UNITS
from samestep.experiments.page.paper.pdf import pdf_of
from samestep.experiments.page.plots import Plot
from samestep.experiments.page.rendering import FRAMEWORKS
from samestep.experiments.printing.picture import file_name

WIDTH = 760.0
"""The width on a screen, in pixels."""
COLUMN, PAGE = 3.3, 6.9
"""The widths in inches of a column and of a page of a paper with two columns."""
KINDS = (".svg", ".pdf")
NAMES = ("tradeoff", "speed", "time", "memory", "sent", "losses", "deviations", "scaling")
"""The figures of a comparison; a report also has the anatomy and the timeline of each row."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        draw: Lays it out for a width in units of a drawing.
        is_fixed: Whether it has a single layout, which only fits a whole page.
    """

    draw: Callable[[float], Element]
    is_fixed: bool = False

    def _repr_svg_(self) -> str:
        return file_of(self.draw(WIDTH))

    def save(self, path: Path | str, inches: float | None = None) -> Path:
        """Writes it as SVG, with colours for light and dark backgrounds, or as PDF; returns the file.

        Args:
            path: The file, whose suffix decides the format.
            inches: The width on paper, where text is set at 8 points: 3.3 for a column, 6.9 for a page of two columns. Without
                it, a PDF is as wide as a page, and SVG as a screen.

        Raises:
            ConfigError: The suffix is neither `.svg` nor `.pdf`, or the width is not positive.
        """
        path = Path(path)
        if path.suffix not in KINDS:
            raise ConfigError(f"'{path}' ends in neither .svg nor .pdf; name a file that does.")
        if inches is not None and not inches > 0:
            raise ConfigError(f"a figure cannot be {inches} inches wide; give a width above 0, such as {COLUMN}.")
        is_pdf = path.suffix == ".pdf"
        if is_pdf and inches is None:
            inches = PAGE
        root = self.draw(inches * UNITS if inches else WIDTH)
        with replacing(path, is_users=True) as file:
            file.write(pdf_of(root, inches) if is_pdf and inches else _sized(root, inches).encode())
        return path


def _sized(root: Element, inches: float | None) -> str:
    if inches:
        height = inches * float(root.get("height", "0")) / float(root.get("width", "1"))
        root = copy.deepcopy(root)
        root.attrib |= {"width": f"{inches:g}in", "height": f"{height:.4g}in"}
    return file_of(root)


def plot(found: Comparison, name: str) -> Figure:
    """Returns a figure of a comparison.

    Args:
        found: The comparison.
        name: One of NAMES.

    Raises:
        ConfigError: There is no such figure, or this comparison has nothing to show in it.
    """
    if name not in NAMES:
        raise unknown("figure", name, NAMES)
    for own, figure in _figures(loaded_comparison(found)):
        if own == name:
            return figure
    if name == "tradeoff":
        raise ConfigError("fewer than two rows were measured, so there is nothing to plot; compare more rows.")
    raise ConfigError(f"this comparison measured nothing that the figure '{name}' shows.")


def write_figures(loaded: Loaded, folder: Path) -> int:
    """Writes every figure as SVG and PDF, in the widths of a column and of a page; returns the number of files.

    Args:
        loaded: The contents of the report.
        folder: The folder, which is made if it does not exist.

    Raises:
        ConfigError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names: dict[str, int] = {}
        files = 0
        for name, figure in _figures(loaded):
            names[name] = names.get(name, 0) + 1
            stem = name if names[name] == 1 else f"{name}-{names[name]}"
            for (width, inches), kind in itertools.product((("column", COLUMN), ("page", PAGE)), KINDS):
                if width == "page" or not figure.is_fixed:
                    figure.save(folder / f"{stem}-{width}{kind}", inches)
                    files += 1
    except OSError as error:
        raise ConfigError(f"--figures {folder} cannot be written ({error.strerror}); name another folder.") from None
    return files


def _figures(loaded: Loaded) -> Iterator[tuple[str, Figure]]:
    for group in loaded.groups:
        if trade(group.comparison) is not None:
            yield "tradeoff", Figure(lambda width, found=group.comparison: trade(found, width))  # pyrefly: ignore[bad-argument-type]
        for title, panel in scaling.panels(group):
            yield "scaling", Figure(lambda width, panel=panel, title=title: graph(panel, title, _IDEAL, width))
    for facet in loaded.facets():
        yield from _of_facet(facet)
    for entry in loaded.entries:
        for name, draw in (("anatomy", observed.draw_anatomy), ("timeline", observed.draw_timeline)):
            drawn = draw(entry, entry.result) if entry.result else None
            if drawn is not None and not isinstance(drawn, str):
                yield f"{name}-{file_name(entry.name)}", Figure(lambda width, drawn=drawn: drawn, is_fixed=True)


_IDEAL = [("ideal", "twice the devices, twice the speed")]


def _of_facet(facet: Facet) -> Iterator[tuple[str, Figure]]:
    there = {entry.framework for entry, _ in facet.rows}
    titles = [(name, title) for name, title in FRAMEWORKS if name in there]
    results = [result for _, result in facet.rows]
    dots = [(f"dot {name}", title) for name, title in titles]
    bars = [(f"bar {name}", f"{title}, measured") for name, title in titles]
    charts: list[tuple[str, Key, Callable[[Facet], Plot | None]]] = [
        ("speed", [*dots, ("interval numpy", "95 % prediction interval")], speed.plot),
        ("time", step_parts.swatches(results), step_parts.plot),
        ("memory", memory.swatches(results), memory.plot),
        ("sent", [*bars, *wire.MARKS], wire.plot),
    ]
    for name, key, make in charts:
        if (made := make(facet)) is not None:
            yield name, Figure(lambda width, made=made, key=key: chart(made, key, width))
    for name, panel in losses.panels(facet):
        drawn = {each.kind for each in panel.curves}
        key = [(kind, title) for kind, title in [*FRAMEWORKS, ("bad", "not the same step")] if kind in drawn]
        yield name, Figure(lambda width, panel=panel, key=key: graph(panel, facet.title, key, width))
