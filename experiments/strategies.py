"""The catalogue: `python -m experiments.strategies [framework:strategy]`."""

import ast
import difflib
import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from samestep.common.catalog import catalogue, require_row, strategy_info
from samestep.common.errors import Unavailable
from samestep.common.flags import flags, spell_flag
from samestep.common.request import FRAMEWORKS, RunConfig
from samestep.common.strategy import StrategyInfo
from samestep.experiments.arguments import Parser, apply_cell, run_command
from samestep.experiments.text import github


def main(arguments: Sequence[str]) -> int:
    """Prints the catalogue, or one row of it.

    Raises:
        ConfigError: There is no such row.
    """
    parser = Parser(prog="samestep strategies", description=__doc__)
    parser.add_argument("cell", nargs="?", help="one row, as in torch:ddp")
    chosen = parser.parse_args(arguments).cell
    print(_describe(apply_cell(chosen, RunConfig())) if chosen else tables())
    return 0


def tables() -> str:
    """Every strategy of every framework, and whether this machine can run it."""
    rows = [_summary(framework, row) for framework, row in catalogue()]
    headers = ["strategy", "data is split", "model is split", "API", "upstream says"]
    return f"{overview()}\n\n{github(headers, rows, _width())}"


def _width() -> int | None:
    """A terminal's; what is piped or pasted elsewhere stays in one line a row."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def overview() -> str:
    """What each strategy is for, and whether this machine can run it."""
    rows = []
    for framework, row in catalogue():
        name = f"{framework}:{row.name}" + (f" ({row.emulation})" if row.emulation else "")
        rows.append([name, row.summary, row.goal, row.hardware, availability(framework, row.name)])
    return github(["strategy", "what it does", "goal", "hardware", "on this machine"], rows, _width())


def availability(framework: str, strategy: str) -> str:
    """Whether a row can be used here, or how to get what it lacks."""
    try:
        require_row(framework, strategy)
    except Unavailable as error:
        return str(error)
    return "available"


def _summary(framework: str, row: StrategyInfo) -> list[str]:
    splits = [f"{split.answer}: {split.how}" for split in (row.data_split, row.model_split)]
    twin = f", twin of {row.twin}" if row.twin else ""
    return [f"{framework}:{row.name}{twin}", *splits, row.reference, row.status]


def _describe(config: RunConfig) -> str:
    framework, row = config.framework, strategy_info(config.framework, config.strategy)
    path = strategy_file(framework, row.name)
    source = path.read_text()
    parts = [f"{framework}:{row.name}: {row.summary}", ast.get_docstring(ast.parse(source)) or ""]
    facts = {
        "goal": row.goal,
        "data split": f"{row.data_split.answer}: {row.data_split.how}",
        "model split": f"{row.model_split.answer}: {row.model_split.how}",
        "synchronous": "yes" if row.synchronous(row.options(**config.options)) else "no",
        "mesh axes": ", ".join(row.axes) or "none: one device",
        "dtypes": ", ".join(row.dtypes),
        "API": row.reference,
        "upstream says": row.status,
        "on this machine": availability(framework, row.name),
    }
    facts |= {
        spell_flag(name): f"{field.metadata['help']} (default: {field.default})"
        for name, field in flags(row.options).items()
    }
    facts |= {f"measures {m.name}": f"{m.unit}: {m.meaning}" for m in row.measures}
    parts.append(github(["", ""], [[name, value] for name, value in facts.items()], _width()))
    parts.append(_difference(framework, row, source))
    if row.twin:
        twin_framework, _, twin_name = row.twin.partition(":")
        twin = strategy_info(twin_framework, twin_name)
        parts.append(f"Its twin is {row.twin}: {twin.summary}\n{strategy_file(twin_framework, twin_name)}")
    return "\n\n".join(part for part in parts if part)


def _difference(framework: str, row: StrategyInfo, source: str) -> str:
    single = strategy_file(framework, "single")
    if row.name == "single" or not single.exists():
        return f"{strategy_file(framework, row.name)}:\n\n{source}"
    lines = difflib.unified_diff(
        single.read_text().splitlines(), source.splitlines(), "single.py", f"{row.name}.py", lineterm="", n=1
    )
    return "What makes it differ from single.py:\n\n" + "\n".join(lines)


def strategy_file(framework: str, name: str) -> Path:
    """The file of a strategy, found without importing its framework."""
    spec = importlib.util.find_spec(FRAMEWORKS[framework])
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "strategies" / f"{name}.py"


if __name__ == "__main__":
    run_command(main)
