"""A report in any format: the page, or what the comparisons themselves would print, one after the other."""

from samestep.experiments.page.loaded import Loaded
from samestep.experiments.page.page import page
from samestep.experiments.printing.formats import Document, write


def document(loaded: Loaded, form: str) -> str:
    """Writes a report.

    Args:
        loaded: What it is about.
        form: "html", or a format of `experiments.printing.formats`.
    """
    return page(loaded) if form == "html" else write(_document(loaded), form)


def _document(loaded: Loaded) -> Document:
    parts = [(group, group.comparison.document("")) for group in loaded.groups]
    problems = [{"directory": str(each.place), "message": each.message} for each in loaded.problems]
    return Document(
        name="samestep report",
        text=lambda: "\n\n".join(f"## {group.title}\n\n{part.text()}" for group, part in parts),
        record={"comparisons": [{"title": group.title, **part.record} for group, part in parts], "problems": problems},
        rows=[{"comparison": group.title, **row} for group, part in parts for row in part.rows],
        cases=[case for _, part in parts for case in part.cases],
    )
