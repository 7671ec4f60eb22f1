"""Rewrites the README's generated parts: `python -m experiments.readme [COMPARISON_DIR]`."""

import re
from collections.abc import Sequence
from pathlib import Path

from samestep.common.catalog import catalogue
from samestep.common.runtime.records import load_result
from samestep.experiments import tables
from samestep.experiments.arguments import run_command
from samestep.experiments.text import github

README = Path(__file__).resolve().parents[1] / "README.md"


def main(arguments: Sequence[str]) -> int:
    """Writes the strategies from the catalogues; and from a comparison's directory, if one is given, its results."""
    text = replaced(README.read_text(), "strategies", strategies())
    for directory in arguments[:1]:
        text = replaced(text, "results", results(Path(directory)))
    README.write_text(text)
    return 0


def strategies() -> str:
    """Every row of every catalogue, but the oracle's."""
    rows = []
    for framework, row in catalogue():
        if framework != "numpy":
            emulated = f" ({row.emulation})" if row.emulation else ""
            rows.append([f"`{framework}:{row.name}`{emulated}", row.summary, row.reference, row.status])
    return github(["strategy", "what it does", "API", "upstream says"], rows)


def results(directory: Path) -> str:
    """The table of a comparison that was run with `--out`."""
    runs = [
        load_result(path.parent) for path in sorted(directory.glob("*/result.json"), key=lambda p: p.stat().st_mtime)
    ]
    return f"{tables.caption(runs)}\n\n{tables.comparison(runs)}\n\n{tables.verdict(runs)}"


def replaced(text: str, name: str, content: str) -> str:
    """The text with what stands between two markers replaced."""
    pattern = re.compile(f"(<!-- {name} -->).*(<!-- /{name} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)


if __name__ == "__main__":
    run_command(main)
