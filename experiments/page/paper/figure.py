"""A figure that a notebook shows, and that can be written into a file."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import Element

from samestep.common.errors import ConfigError
from samestep.common.files.writing import replacing
from samestep.experiments.page.drawings.svg import file_of
from samestep.experiments.page.paper.figure_parts import UNITS
from samestep.experiments.page.paper.pdf import pdf_of

WIDTH = 760.0
"""On a screen."""
COLUMN, PAGE = 3.3, 6.9
"""The widths in inches of a column and of a page of a paper with two columns."""
KINDS = (".svg", ".pdf")


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
        """Writes it as SVG, which brings its own colours for light and dark, or as PDF; returns the file.

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
