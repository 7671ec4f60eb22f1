"""Rewrites the generated parts of the README and of docs/: `python -m documenting.readme [COMPARISON_DIR]`."""

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from documenting import published_models, seconds_page
from samestep.common.catalog import catalogue, framework_info, strategies_of
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.workload.declaration import BUILDERS
from samestep.experiments import demo
from samestep.experiments.cli.ending import run_command
from samestep.experiments.comparing import stored
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.quantities import QUANTITIES
from samestep.experiments.comparing.speeds import MeasuredRow, speed_of
from samestep.experiments.printing import tables
from samestep.experiments.printing.column_table import table
from samestep.experiments.printing.text import fill, github
from samestep.experiments.strategies import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = {name: ROOT / "docs" / f"{framework_info(name).title.lower()}.md" for name in BUILDERS}
PREDICTING = ROOT / "docs" / "predicting.md"
SECONDS = ROOT / "docs" / "seconds.md"
STRATEGIES = ROOT / "docs" / "strategies.md"
MEASURING = ROOT / "docs" / "measuring.md"
WIDTH = 100
"""The width of printed text in the README."""
FRONT = (
    *("torch:single", "torch:ddp", "torch:zero1", "torch:fsdp", "torch:pp"),
    *("tf:mirrored", "tf:multi_worker_mirrored", "tf:parameter_server"),
)
"""The rows of the README, which show how strategies differ; docs/strategies.md has all rows."""
MISTAKE = "forgotten_exchange"
"""The mistake planted in a row of the README; it saves all traffic, and hardly shows in the accuracy."""
SECONDS_OF_A_TINY_MODEL = ("examples/s", "[spread]", "step ms p50 p95 p99", "start-up s")
"""The columns that no table of the README has, since they say nothing about a strategy if one core beats two."""


def main(arguments: Sequence[str]) -> int:
    """Writes the parts that come from the catalogues and, if a comparison's directory is given, its results."""
    parts = []
    for directory in map(Path, arguments[:1]):
        parts += [(README, "results", front(directory)), (STRATEGIES, "results", results(directory))]
    for write in (lambda: parts, generated):  # what is generated depends on the results
        for page, name, content in write():
            page.write_text(replaced(page.read_text(), name, content))
    return 0


def generated() -> list[tuple[Path, str, str]]:
    """Returns page, name and content of every part that comes from the catalogues, the cost models or another page."""
    parts = {
        "zero": published_models.zero(),
        "giants": published_models.giants(),
        "sources": published_models.sources(),
    }
    predicting = [(PREDICTING, name, content) for name, content in parts.items()]
    predicting.append((PREDICTING, "errors", published_models.errors(STRATEGIES.read_text())))
    predicting.append((PREDICTING, "extrapolation", seconds_page.extrapolation()))
    upstreams = [(PAGES[name], "upstream", upstream(name)) for name in PAGES]
    told = {
        "vtrain": seconds_page.vtrain(),
        "constants": seconds_page.constants(),
        "elsewhere": seconds_page.elsewhere(),
    }
    seconds = [(SECONDS, name, content) for name, content in told.items()]
    measuring = (MEASURING, "quantities", quantities_table())
    return [(STRATEGIES, "strategies", strategies()), measuring, *upstreams, *predicting, *seconds]


def strategies() -> str:
    """Returns the table of all rows of all catalogues except the oracle."""
    rows = [(framework, row) for framework, row in catalogue() if framework != "numpy"]
    lasting = [column for column in COLUMNS if column.header != "here"]  # the page is not about one machine
    return table(lasting, rows)


def quantities_table() -> str:
    """Returns the table of the quantities by which results are compared, with their names for programs and trackers."""
    headers = ["quantity", "unit", "what it says", "better", "in `--format csv`", "in trackers"]
    rows = [
        [each.name, each.unit, each.meaning, each.better, _code(each.key), _code(each.tracked_as)]
        for each in QUANTITIES
    ]
    return github(headers, rows)


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


def upstream(framework: str) -> str:
    """Returns the table of what upstream says about the API of each strategy of a framework."""
    rows = [[f"`{row.name}`", f"`{row.reference}`", row.status] for row in strategies_of(framework)]
    return github(["strategy", "API", "upstream says"], rows)


def results(directory: Path) -> str:
    """Returns the table of a comparison that was run with `--out`, the meaning of its columns, and a sentence about all rows.

    Args:
        directory: The directory of the comparison.
    """
    found = stored.load(directory)
    return f"{_table(found.measured)}\n\n{tables.verdict(found.results)}"


def front(directory: Path) -> str:
    """Returns the table of FRONT's rows and of a wrong one, the first row in which samestep can plant a mistake.

    It trains that row with MISTAKE in its step, under the settings of the comparison.

    Args:
        directory: The directory of the comparison.
    """
    found = stored.load(directory)
    shown = [row for row in found.measured if row.cell in FRONT]
    first = next(row.result.config for row in shown if row.cell == demo.ROWS[0])
    with TemporaryDirectory() as scratch, Launcher(worker=demo.PLANTER) as launcher:
        wrong = demo.train(launcher, first, Path(scratch, "wrong"), MISTAKE)
    return front_table(found, [*shown, MeasuredRow(wrong, speed_of([wrong]), f"{demo.ROWS[0]} (mistaken)")])


def front_table(found: Comparison, shown: Sequence[MeasuredRow]) -> str:
    """Returns the table of the README, with what samestep says about its last row, which is wrong.

    Args:
        found: The comparison.
        shown: The rows.
    """
    # The page with all rows has the meaning of the columns.
    table = _table(shown).partition("\n* ")[0].rstrip()
    told = f"The last row is {demo.ROWS[0]} with a mistake planted in it, `{MISTAKE}`. samestep was not told, and says:"
    said = f"> {fill(shown[-1].result.parity.reason, WIDTH - 2, '> ')}"
    return f"{table}\n\n{tables.verdict(found.results)}\n{fill(told, WIDTH)}\n\n{said}"


def _table(shown: Sequence[MeasuredRow]) -> str:
    table = tables.comparison(shown, width=WIDTH, leave_out=SECONDS_OF_A_TINY_MODEL)
    return f"{tables.caption(shown, WIDTH)}\n\n{table}"


def replaced(text: str, name: str, content: str) -> str:
    """Returns a text in which the part between two markers is replaced.

    Args:
        text: The text with the markers.
        name: The name in the markers.
        content: What to put between them.
    """
    pattern = re.compile(f"(<!-- {name} -->).*(<!-- /{name} -->)", re.DOTALL)
    assert pattern.search(text), f"the markers of '{name}' are missing"
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)


if __name__ == "__main__":
    run_command(main)
