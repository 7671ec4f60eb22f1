"""The page of `samestep explore`: one file with every strategy's steps, and a script that plays them."""

import ast
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from samestep.common import memory
from samestep.common.catalog import framework_info, mirror_folder
from samestep.common.cell import Cell
from samestep.common.files.reading import read_text
from samestep.common.ledger import PHASES, STATE_OF_A_DEVICE
from samestep.experiments.exploring.grid import EXPERTS, Grid, predicted, request_of
from samestep.experiments.exploring.steps import BEGINNING, NOTHING_SENT
from samestep.experiments.page.drawings.device_bars import CLASSES
from samestep.experiments.page.rendering import assembled, render
from samestep.experiments.printing.text import explain_emulation, marked

_PARAGRAPH = r"(?=\b(?:Replicated|Split|Sent)\b[:,]|\bUse it\b)"
"""The beginnings of paragraphs in the docstring of a strategy."""
HERE = Path(__file__).parent
TOTALS = ("state, fullest device", "activations, fullest device", "sent, all processes")
HATCHES = ((memory.GRADIENTS, 45), (memory.OPTIMIZER_STATE, -45), (memory.ACTIVATIONS, 0))
"""The angle of the hatching that distinguishes classes in addition to their colour; parameters have none."""


def explorer(grid: Grid, start: Mapping[str, int], measured: Mapping[Cell, tuple[str, dict[str, object]]]) -> str:
    """Returns the HTML of the explorer's page.

    Args:
        grid: The possible settings.
        start: The initial setting: the places of both strategies, of the number of devices and of the width.
        measured: Strategy -> the point of the grid at which it was run, and its measured step.
    """
    shared = {
        "devices": grid.devices,
        "widths": grid.widths,
        "phases": [phase.capitalize() for phase in PHASES],
    }
    data = {
        **shared,
        "beginnings": [BEGINNING[phase] for phase in PHASES],
        "silent": NOTHING_SENT,
        "classes": [(each.kind, each.name) for each in CLASSES],
        "totals": TOTALS,
        "start": start,
        "rows": [_row(grid, cell, measured.get(cell)) for cell in grid.rows],
    }
    content = {
        **shared,
        "choices": list(_choices(grid.rows)),
        "key": [(each.kind, each.name) for each in (*CLASSES, memory.ACTIVATIONS)],
        "hatches": [(each.kind, angle) for each, angle in HATCHES],
        "state": STATE_OF_A_DEVICE,
        "steps": Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")),
    }
    title, about = "A step of two strategies, side by side", _about(grid)
    sections = [("explore", "Choose, and play", render("explorer", content))]
    script = "\n".join(read_text(HERE / file) for file in ("drawing.js", "explorer.js"))
    style = Markup(read_text(HERE / "explorer.css"))
    return assembled(title, about, sections, Markup(f'"use strict";\n{{\n{script}}}'), style, "samestep explore")


def _about(grid: Grid) -> str:
    base = grid.base
    return (
        f"{base.model or base.workload}, global batch {base.batch_size or 'as usual'}, {base.optimizer}, {base.dtype}"
    )


def _choices(rows: Sequence[Cell]) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    numbered = sorted(enumerate(rows), key=lambda pair: pair[1].framework != rows[0].framework)
    for framework, group in itertools.groupby(numbered, lambda pair: pair[1].framework):
        yield framework_info(framework).title, [(number, _name(cell)) for number, cell in group]


def _name(cell: Cell) -> str:
    return marked(cell, cell.info.emulation)


def _row(grid: Grid, cell: Cell, measured: tuple[str, dict[str, object]] | None) -> dict[str, object]:
    info = cell.info
    counterpart = next((number for number, row in enumerate(grid.rows) if str(row) == info.counterpart), None)
    return {
        "name": _name(cell),
        "framework": cell.framework,
        "summary": info.summary,
        "emulated": explain_emulation("It", info.emulation) if info.emulation else "",
        "counterpart": counterpart,
        "model": _own_model(grid, cell),
        "about": _in_paragraphs(cell),
        "steps": dict(predicted(grid, cell)),
        "measured": {"key": measured[0], "step": measured[1]} if measured else None,
    }


def _own_model(grid: Grid, cell: Cell) -> str:
    """Returns a remark on a row that trains another model than the other rows; "" for the other rows."""
    if request_of(grid.base, cell).workload == cell.apply_to(grid.base).workload:
        return ""
    cut = f"Its model has {EXPERTS} experts in each block, which it cuts."
    return f"{cut} So its bytes compare with those of its counterpart only."


def _in_paragraphs(cell: Cell) -> list[str]:
    """Returns the paragraphs of a strategy's docstring: what it is, what is replicated, split and sent, and when to use it."""
    source = read_text(mirror_folder(cell.framework) / "strategies" / f"{cell.strategy}.py")
    told = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    parts = (line for part in told for line in re.split(_PARAGRAPH, part))
    return [line for line in (" ".join(part.split()) for part in parts) if line]
