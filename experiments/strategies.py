"""Print the catalogue of strategies, or one strategy in full: `samestep strategies torch:ddp`."""

import ast
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

from samestep.common.catalog import catalogue, lacks, mirror_folder, strategy_info
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.files.reading import read_text
from samestep.common.flags import Scalar, flags, spell_flag
from samestep.common.request import RunConfig
from samestep.common.strategy import StrategyInfo
from samestep.common.techniques import Techniques
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.column_table import Column, explained
from samestep.experiments.printing.formats import FORMATS, Case, Document, add_format, write
from samestep.experiments.printing.picture import write_picture
from samestep.experiments.printing.text import explain_emulation, fill, marked, paragraphs, sharing

Row = tuple[str, StrategyInfo]
"""A framework and a row of its catalogue."""


def main(arguments: Sequence[str]) -> int:
    """Prints the catalogue, or one row of it.

    Raises:
        ConfigError: There is no such row.
    """
    parser = Parser(prog="samestep strategies", description=__doc__)
    parser.examples = (
        "samestep strategies",
        "samestep strategies torch:ddp",
        "samestep strategies torch:fsdp --picture --beside torch:ddp",
    )
    parser.add_argument(
        "cell",
        nargs="?",
        metavar="CELL",
        help="the strategy to print in full: torch:ddp, or ddp where only one framework has it",
    )
    parser.add_argument(
        "--picture",
        action="store_true",
        help="run it for a few steps on a small model, and draw what it holds and sends",
    )
    parser.add_argument("--beside", metavar="CELL", help="a second strategy, drawn next to it")
    parser.add_argument("-o", metavar="FILE", dest="out", help="the picture's file (default: named after the strategy)")
    add_format(parser)
    given = parser.parse_args(arguments)
    if given.picture or given.beside or given.out:
        if given.format != next(iter(FORMATS)):
            raise ConfigError(f"--picture writes an SVG file; leave out --format {given.format}.")
        return _picture(given.cell, given.picture, given.beside, given.out)
    chosen = None if given.cell is None else Cell.parse(given.cell).apply_to(RunConfig())
    rows = catalogue() if chosen is None else [(chosen.framework, strategy_info(chosen.framework, chosen.strategy))]
    print(write(_listing(rows, lambda: tables() if chosen is None else _describe(chosen)), given.format))
    return 0


def _picture(cell: str | None, picture: bool, beside: str | None, out: str | None) -> int:
    if cell is None or not picture:
        raise ConfigError("a picture is drawn by --picture of one strategy: samestep strategies torch:ddp --picture.")
    print(write_picture([str(Cell.parse(each)) for each in (cell, beside) if each], out))
    return 0


def _listing(rows: Sequence[Row], text: Callable[[], str]) -> Document:
    """Makes the document of some rows: a record of each for programs."""
    records = [_record(framework, row) for framework, row in rows]
    cases = [Case(str(r["cell"]), "skipped" if r["lacks"] else "passed", str(r["lacks"])) for r in records]
    options = [
        [
            {"name": name, "default": each.default, **{key: each.metadata[key] for key in ("choices", "help")}}
            for name, each in flags(row.options).items()
        ]
        for _, row in rows
    ]
    whole = [{**record, "options": each} for record, each in zip(records, options, strict=True)]
    return Document("samestep strategies", text, {"strategies": whole}, records, cases)


def _record(framework: str, row: StrategyInfo) -> dict[str, Scalar]:
    return {
        "cell": f"{framework}:{row.name}",
        "summary": row.summary,
        "goal": row.goal,
        "data_split": row.data_split.answer,
        "data_split_how": row.data_split.how,
        "model_split": row.model_split.answer,
        "model_split_how": row.model_split.how,
        "hardware": row.hardware,
        "mesh_axes": " ".join(row.axes),
        "dtypes": " ".join(row.dtypes),
        "api": row.reference,
        "upstream": row.status,
        "counterpart": row.counterpart,
        "twin": row.counterpart,  # its name until the next release
        "emulation": row.emulation,
        "lacks": lacks(framework, row.name),
    }


def tables() -> str:
    """Returns one line for every strategy of every framework, and what this machine lacks for strategies that it cannot run."""
    rows = catalogue()
    lacking = sharing((lacks(framework, row.name), f"{framework}:{row.name}") for framework, row in rows)
    lines = [f"{reason} ({', '.join(names)})" for reason, names in lacking.items() if reason]
    lines += [
        explain_emulation(f"{name}:{row.name}, without its hardware,", row.emulation)
        for name, row in rows
        if row.emulation
    ]
    return explained(COLUMNS, rows, [*lines, "one strategy in full: samestep strategies torch:ddp"])


COLUMNS: tuple[Column[Row], ...] = (
    Column("strategy", lambda row: marked(f"{row[0]}:{row[1].name}", row[1].emulation)),
    Column("what it is for", lambda row: row[1].goal),
    Column("batch", lambda row: row[1].data_split.answer, "whether the batch is split over the devices", 2),
    Column("model", lambda row: row[1].model_split.answer, "whether the model is split over the devices", 2),
    Column("upstream", lambda row: row[1].status.partition(";")[0], "what the maintainers of its API say about it", 1),
    Column("here", lambda row: "no" if lacks(row[0], row[1].name) else "yes"),
)


def _describe(config: RunConfig) -> str:
    framework, row = config.framework, strategy_info(config.framework, config.strategy)
    path = strategy_file(framework, row.name)
    source = read_text(path)
    parts = [f"{framework}:{row.name}: {row.summary}", *(ast.get_docstring(ast.parse(source)) or "").split("\n\n")]
    facts = {
        "goal": row.goal,
        "data split": f"{row.data_split.answer}: {row.data_split.how}",
        "model split": f"{row.model_split.answer}: {row.model_split.how}",
        "synchronous": "yes" if row.synchronous(row.options(**config.options)) else "no",
        "repeats bit for bit": f"no: {why}"
        if (why := row.varies(row.options(**config.options)))
        else "yes, on CPU cores",
        "mesh axes": ", ".join(row.axes) or "none: one device",
        "dtypes": ", ".join(row.dtypes),
        "API": row.reference,
        "upstream says": row.status,
        "on this machine": lacks(framework, row.name) or "available",
    }
    facts |= {
        spell_flag(name): f"{field.metadata['help']}"
        + ("" if field.default is None else f" (default: {field.default})")
        for name, field in flags(row.options).items()
    }
    techniques = flags(Techniques)
    spelled = {name: spell_flag(name) if name in techniques else f"+{name}=" for name in row.refuses}
    refused = sharing((why, spelled[name]) for name, why in row.refuses.items())
    facts |= {f"does not take {', '.join(sorted(names))}": why for why, names in refused.items()}
    facts |= {f"measures {m.name} ({m.unit})": m.meaning for m in row.measures}
    parts = [fill(" ".join(part.split())) for part in parts]
    parts.append("\n".join(fill(f"{name}: {value}", indent="    ") for name, value in facts.items()))
    parts.append(_difference(framework, row, source))
    if row.counterpart:
        other = Cell.parse(row.counterpart)
        said = fill(f"Its counterpart is {other}: {other.info.summary}")
        parts.append(f"{said}\n{strategy_file(other.framework, other.strategy)}")
    return paragraphs(*parts)


def _difference(framework: str, row: StrategyInfo, source: str) -> str:
    single = strategy_file(framework, "single")
    if row.name == "single" or not single.exists():
        return f"{strategy_file(framework, row.name)}:\n\n{source}"
    lines = difflib.unified_diff(
        read_text(single).splitlines(), source.splitlines(), "single.py", f"{row.name}.py", lineterm="", n=1
    )
    return "What makes it differ from single.py:\n\n" + "\n".join(lines)


def strategy_file(framework: str, name: str) -> Path:
    """Returns the file of a strategy, found without importing its framework.

    Args:
        framework: The framework of the strategy.
        name: The name of the strategy.
    """
    return mirror_folder(framework) / "strategies" / f"{name}.py"


if __name__ == "__main__":
    run_command(main)
