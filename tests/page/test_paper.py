"""Figures for a paper: one page as wide as it was asked for, with text that can be read out, and a file for each figure."""

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from samestep.common.errors import ConfigError
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.page.drawings.svg import drawing, write
from samestep.experiments.page.loaded import Loaded
from samestep.experiments.page.loading import load
from samestep.experiments.page.paper.figures import COLUMN, NAMES, PAGE, write_figures
from samestep.experiments.page.paper.pdf import POINTS, pdf_of
from samestep.experiments.report import main
from tests.page import runs
from tests.page.pdfs import reader, text_of

# --- the file -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inches", [COLUMN, PAGE])
@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_pdf_is_one_page_of_the_width_asked_for_with_its_names_as_text(
    found: Comparison, name: str, inches: float, tmp_path: Path
) -> None:
    path = found.plot(name).save(tmp_path / "figure.pdf", inches)
    pages = reader().PdfReader(path).pages
    assert len(pages) == 1
    assert float(pages[0].mediabox.width) == pytest.approx(inches * POINTS, abs=0.01)
    text = pages[0].extract_text()
    if name in ("losses", "deviations"):
        assert all(words in text for words in ("PyTorch", "TensorFlow", "not the same step", "step"))
    else:
        shown = {row.cell for row in found.rows if row.result} - ({"numpy:oracle"} if name == "tradeoff" else set())
        assert shown and all(cell in text for cell in shown)


def test_text_keeps_its_size_at_any_width(found: Comparison, tmp_path: Path) -> None:
    """Eight points: a figure is laid out anew, and not made smaller."""
    for inches in (COLUMN, PAGE):
        content = reader().PdfReader(found.plot("memory").save(tmp_path / "a.pdf", inches)).pages[0].get_contents()
        scale = float(content.get_data().split(b" ", 1)[0])
        assert scale * 12 == pytest.approx(8.0, abs=1e-3)


def test_svg_has_the_width_asked_for_and_a_screen_s_without(found: Comparison, tmp_path: Path) -> None:
    sized = ElementTree.parse(found.plot().save(tmp_path / "a.svg", COLUMN)).getroot()
    assert sized.get("width") == "3.3in"
    assert ElementTree.parse(found.plot().save(tmp_path / "b.svg")).getroot().get("width") == "760"


def test_letters_that_the_fonts_lack_and_brackets_do_not_break_a_file() -> None:
    root = drawing(100, 40, "(a", "")
    write(root, 2, 20, "a (b) \\ é 2 × 3 → 数")
    assert text_of(pdf_of(root, 1.0)).strip() == "a (b) \\ é 2 × 3 -> ?"


def test_a_report_writes_every_figure_at_both_widths(directories: list[Path], tmp_path: Path) -> None:
    assert main([*map(str, directories), "--figures", str(tmp_path / "figures")]) in (0, 1)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    for name, width, kind in itertools.product(NAMES, ("column", "page"), ("svg", "pdf")):
        assert f"{name}-{width}.{kind}" in names
    drawn = {name.rsplit("-", 1)[0] for name in names}
    assert {"anatomy-torch-zero1", "timeline-torch-zero1"} <= drawn
    assert "timeline-torch-zero1-column.pdf" not in names  # it has one layout, which is unreadable in a column
    for path in (tmp_path / "figures").glob("*-column.pdf"):
        assert text_of(path.read_bytes()).strip(), path


def test_what_cannot_be_drawn_is_refused_in_a_line(found: Comparison, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown figure 'sped'"):
        found.plot("sped")
    with pytest.raises(ConfigError, match="measured nothing that the figure 'scaling' shows"):
        found.plot("scaling")
    with pytest.raises(ConfigError, match=r"neither \.svg nor \.pdf"):
        found.plot().save(tmp_path / "a.png")
    with pytest.raises(ConfigError, match="cannot be -1 inches wide"):
        found.plot().save(tmp_path / "a.pdf", -1)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--figures .* cannot be written"):
        write_figures(Loaded(()), tmp_path / "file" / "inside")


def test_widths_of_letters_are_those_of_the_font() -> None:
    """Against the metrics that Adobe publishes, where matplotlib brings them."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib, which brings the metrics, is not installed")
    from samestep.experiments.page.paper.helvetica import text_width

    for name, is_bold in (("Helvetica", False), ("Helvetica-Bold", True)):
        lines = (Path(matplotlib.get_data_path()) / "fonts" / "pdfcorefonts" / f"{name}.afm").read_text()
        there = {int(code): int(wide) for code, wide in re.findall(r"^C (\d+) ; WX (\d+)", lines, re.MULTILINE)}
        quotes = (39, 96)  # the font's own encoding has curved ones there, that of the files straight ones
        for code in set(range(32, 127)) - set(quotes):
            assert text_width(chr(code), 1000, is_bold) == there[code], chr(code)


def test_a_report_of_a_run_alone_has_its_figures(tmp_path: Path) -> None:
    one = runs.single(tmp_path / "one", runs.trained("torch:zero1", 500.0))
    assert write_figures(load([one]), tmp_path / "figures") >= 4
