"""The contents of a report: the run directories that were named, as comparisons, and those that could not be read."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from samestep.common.runtime.records import RunResult
from samestep.common.workload.table import title
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.formats import Document
from samestep.experiments.printing.text import marked, sharing


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row of a report.

    Attributes:
        key: The key that connects the marks of the row in all figures with its line in the table.
        name: Its cell, with a mark if it is emulated.
        row: The row.
        measured: Its result with its speed over its rounds; None without a result.
        directories: The directories of its runs, one for each round.
    """

    key: str
    name: str
    row: Row
    measured: MeasuredRow | None
    directories: tuple[Path, ...]

    @property
    def framework(self) -> str:
        """The framework of the row, a key of FRAMEWORKS."""
        return self.row.configuration.framework

    @property
    def result(self) -> RunResult | None:
        """The result of its row."""
        return self.row.result


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that were run for one purpose: a comparison, or single runs of one setting.

    Attributes:
        title: The name of the comparison, or the setting.
        comparison: The comparison of its rows.
        entries: One entry for each row.
    """

    title: str
    comparison: Comparison
    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A directory that is not reported.

    Attributes:
        place: The directory.
        message: Why it is not reported.
    """

    place: Path
    message: str


@dataclasses.dataclass(frozen=True)
class Facet:
    """The rows of one figure: rows of one group that train the same workload.

    Attributes:
        title: The title of the figure.
        workload: The workload that the rows train.
        rows: The rows with their results.
    """

    title: str
    workload: str
    rows: tuple[tuple[Entry, RunResult], ...]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The contents of a report.

    Attributes:
        groups: At least one group.
        problems: The directories that could not be read.
    """

    groups: tuple[Group, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        """The entries of all rows."""
        return [entry for group in self.groups for entry in group.entries]

    @property
    def results(self) -> list[RunResult]:
        """The results of the rows that have one."""
        return [entry.result for entry in self.entries if entry.result]

    @property
    def kept_apart(self) -> str:
        """Returns which single runs cannot be compared, in a sentence; "" if all can."""
        single = [group.title for group in self.groups if group.comparison.directory is None]
        return f"Single runs of different settings are not compared: {'; '.join(single)}." if single[1:] else ""

    def document(self) -> Document:
        """Returns what the comparisons themselves would print, one after the other, as a document for any format."""
        parts = [(group, group.comparison.document("")) for group in self.groups]
        problems = [{"directory": str(each.place), "message": each.message} for each in self.problems]
        return Document(
            name="samestep report",
            text=lambda: "\n\n".join(f"## {group.title}\n\n{part.text()}" for group, part in parts),
            record={
                "comparisons": [{"title": group.title, **part.record} for group, part in parts],
                "problems": problems,
            },
            rows=[{"comparison": group.title, **row} for group, part in parts for row in part.rows],
            cases=[case for _, part in parts for case in part.cases],
        )

    def facets(self) -> Iterator["Facet"]:
        """Yields the rows of each figure: those of each group and workload that have a result."""
        for group in self.groups:
            rows = [(entry, entry.result) for entry in group.entries if entry.result]
            kinds = sharing((title(result.workload, result.config.data), (entry, result)) for entry, result in rows)
            for trained, those in kinds.items():
                yield Facet(f"{group.title}: {trained}" if len(kinds) > 1 else group.title, trained, tuple(those))


def make_group(name: str, comparison: Comparison, places: Mapping[str, Sequence[Path]], first: int) -> Group:
    """Makes the group of a comparison.

    Args:
        name: Its title.
        comparison: The comparison.
        places: The directories of the runs of each cell.
        first: The number of its first row in the whole report.
    """
    measured = {row.cell: row for row in comparison.measured}
    entries = []
    for number, row in enumerate(comparison.rows, first):
        called = marked(row.cell, row.result and row.result.emulation)
        entries.append(Entry(f"r{number}", called, row, measured.get(row.cell), tuple(places.get(row.cell, ()))))
    return Group(name, comparison, tuple(entries))
