"""The report on runs, as a function."""

import os
from collections.abc import Iterable
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.output_file import check_output, save
from samestep.common.judging.confounds import check_allowed


def report(
    *runs: str | os.PathLike[str],
    out: str | os.PathLike[str] = "report.html",
    figures: str | os.PathLike[str] | None = None,
    allow: Iterable[str] = (),
) -> Path:
    """Writes a page about runs and comparisons, or about one or two records; returns the file.

    Args:
        *runs: Directories of runs, of comparisons, or that hold some; or one or two records.
        out: The file.
        figures: A folder for every figure, as SVG and PDF in the widths of a paper.
        allow: The confounds despite which rows are ranked.

    Raises:
        ConfigError: There is nothing to report, or a file cannot be written.
    """
    from samestep.experiments.page.loading import load
    from samestep.experiments.page.page import page
    from samestep.experiments.page.paper.figures import write_figures
    from samestep.experiments.page.records.record_page import are_records, report_records
    from samestep.experiments.report import FIGURES_OF_RECORDS

    paths, path = [Path(each) for each in runs], Path(out)
    check_output(path)
    if are_records(paths):
        if figures is not None:
            raise ConfigError(FIGURES_OF_RECORDS)
        save(report_records(paths, "html"), path)
        return path
    loaded = load(paths, check_allowed(allow))
    save(page(loaded), path)
    if figures is not None:
        write_figures(loaded, Path(figures))
    return path
