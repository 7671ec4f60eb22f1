"""The full products: which cells there are, what they measured so far, and the page that shows it."""

import csv
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.judging.parity import LOSS_BOUND, bound_of
from samestep.common.request import FRAMEWORKS
from samestep.common.runtime.records import RunResult
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.experiments.printing.text import github, sharing
from tests.cells import SIZED, USUAL_OPTIMIZERS, every_row, row_of, takes

ROOT = Path(__file__).parents[2]
STORE = ROOT / "build" / "parity"
PAGE = ROOT / "docs" / "parity.md"
CELLS = PAGE.with_suffix(".csv")
STEPS = 100


VARIANTS = (
    *((f"torch:pp+schedule={schedule}", "pipe=2") for schedule in SCHEDULES if schedule != "gpipe"),
    ("torch:pp+schedule=1f1b", "pipe=4"),
    ("torch:fsdp", "data=2,shard=2"),
    *((f"torch:deepspeed+zero_stage={stage}", "data=2") for stage in (2, 3)),
    *(
        ("torch:hybrid", mesh)
        for mesh in (
            *(f"{one},{other}" for one, other in itertools.combinations(("pipe=2", "data=2", "tensor=2"), 2)),
            *("pipe=2,shard=2", "shard=2,tensor=2", "pipe=2,data=2,tensor=2"),
        )
    ),
    *((f"torch:cp+attention_exchange={name}", f"context={size}") for name in ("gather", "ring") for size in (2, 4)),
    *(("tf:context+attention_exchange=gather", f"context={size}") for size in (2, 4)),
    ("torch:fsdp+attention_exchange=ring", "shard=2,context=2"),
    ("torch:hybrid+attention_exchange=ring", "pipe=2,context=2"),
    *((f"tf:mirrored+reduce={name}", "data=2") for name in ("reduction_to_one_device", "hierarchical_copy")),
    *(("tf:dtensor", mesh) for mesh in ("tensor=2", "tensor=4", "data=2,tensor=2")),
    ("tf:dtensor+clients=2", "data=2,tensor=2"),
)
"""Further spellings of rows, with their meshes; in the finest dtype that the row has."""


@dataclasses.dataclass(frozen=True)
class Product:
    """One run of the products, and all that tells it from the others.

    Attributes:
        strategy: As in `torch:pp+schedule=1f1b`.
        model: A key of SIZED.
        optimizer: Of USUAL_OPTIMIZERS.
        dtype: Of DTYPES.
        where: A number of devices, or a mesh.
    """

    strategy: str
    model: str
    optimizer: str
    dtype: str
    where: str

    @property
    def framework(self) -> str:
        """A key of FRAMEWORKS."""
        return self.strategy.partition(":")[0]

    @property
    def devices(self) -> dict[str, object]:
        """The fields of RunConfig that say where."""
        return {"devices": int(self.where)} if self.where.isdigit() else {"mesh": self.where}

    @property
    def name(self) -> str:
        """Short and unique; also the name of its file."""
        return f"{self.strategy}-{self.model}-{self.optimizer}-{self.dtype}-{self.where}"

    @property
    def stored(self) -> Path:
        """Where its measurement is kept; another file once the code has changed."""
        return STORE / _source_digest(self.framework) / f"{self.name.replace(':', '-')}.json"


def chosen(cell: Product) -> bool:
    """Whether ONLY, a list as in torch:ddp,tf:mirrored, names the cell's strategy; without it, all are chosen."""
    only = os.environ.get("ONLY", "")
    return not only or cell.strategy.partition("+")[0] in only.split(",")


def cells() -> list[Product]:
    """Every row x model x optimizer x dtype, on 1 or 2 and 4 devices; then the variants."""
    plain = [
        Product(f"{framework}:{row.name}", model, optimizer, dtype, where)
        for framework, row in every_row()
        for model, optimizer, dtype, where in itertools.product(
            [model for model in SIZED if takes(row, model)],
            USUAL_OPTIMIZERS,
            row.dtypes,
            ("2", "4") if row.axes else ("1",),
        )
    ]
    axes = itertools.product(VARIANTS, SIZED, USUAL_OPTIMIZERS)
    return plain + [
        Product(cell, model, optimizer, row_of(cell).dtypes[-1], where)
        for (cell, where), model, optimizer in axes
        if takes(row_of(cell), model) and ("context" not in where or model == "transformer")
    ]


def store(cell: Product, result: RunResult) -> None:
    """Keeps what a cell measured, so that an interrupted product resumes."""
    cell.stored.parent.mkdir(parents=True, exist_ok=True)
    parity = dataclasses.asdict(result.parity)
    cell.stored.write_text(json.dumps({**parity, "metric": result.metric_value}))


def record(result: RunResult) -> None:
    """Keeps the verdict on a cell with techniques or features, for the page."""
    config, parity = result.config, result.parity
    normalized = f"+batch_norm={config.batch_norm}" if "norm=" in result.workload else ""
    row = [f"{Cell.of(config)}{normalized}", result.workload, result.optimizer, result.dtype, result.mesh]
    reached = [_shown(parity.max_relative_loss), f"{bound_of(parity, result.dtype):.1e}", "yes" * parity.is_amplified]
    folder = STORE / _source_digest(result.framework) / "techniques"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(" ".join(row).encode()).hexdigest()[:16]
    (folder / f"{name}.json").write_text(json.dumps([*row, str(parity.steps), _VERDICTS[parity.passed], *reached]))


def write_page() -> None:
    """Writes docs/parity.md and every cell that the present code has measured, in docs/parity.csv.

    Several processes may measure: the last one that writes has seen what all of them stored. Nothing is written before
    every run of the products is stored, since the files would lose the others.
    """
    if not all(cell.stored.exists() for cell in cells()):
        return
    STORE.mkdir(parents=True, exist_ok=True)
    with (STORE / "page.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_cells(_plain_rows(), _technique_rows())


def write_cells(plain: Sequence[Sequence[str]], techniques: Sequence[Sequence[str]]) -> None:
    """Writes the file of cells, and the page that counts them.

    Args:
        plain: A row for each run of the products, as `_plain_rows` makes them.
        techniques: One for each run with techniques and features.
    """
    rows = [[*r[:5], str(STEPS), r[5], r[6], f"{LOSS_BOUND[r[3]]:.1e}", "", r[7]] for r in plain]
    rows += [[*r, ""] for r in techniques]
    with CELLS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADERS)
        writer.writerows(rows)
    groups = sharing((row[0].partition("+")[0], number) for number, row in enumerate(rows))
    counted = [_counted(name, [rows[number] for number in numbers]) for name, numbers in groups.items()]
    same, judged = (sum(row[6] in kinds for row in rows) for kinds in (("yes",), ("yes", "NO")))
    told = {"plain": len(plain), "techniques": len(techniques), "steps": STEPS, "same": same, "judged": judged}
    PAGE.write_text(_PAGE.format(**told, table=github(_COUNTS, counted)))


def _counted(name: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns how many cells of a strategy took the same step, and the largest deviation of those in float64."""
    took = [row[6] for row in rows]
    largest = max((float(row[7]) for row in rows if row[3] == "float64" and row[7]), default=None)
    return [name, str(len(rows)), str(took.count("yes")), str(took.count("NO")), _shown(largest)]


def _technique_rows() -> list[list[str]]:
    folders = [STORE / _source_digest(name) / "techniques" for name in ("torch", "tf")]
    return sorted(json.loads(path.read_text()) for folder in folders for path in folder.glob("*.json"))


def _plain_rows() -> list[list[str]]:
    rows = []
    for cell in cells():
        if cell.stored.exists():
            kept = json.loads(cell.stored.read_text())
            deviations = [_shown(kept[name]) for name in ("max_relative_loss", "max_absolute_weight")]
            columns = [cell.strategy, cell.model, cell.optimizer, cell.dtype, cell.where]
            rows.append([*columns, _VERDICTS[kept["passed"]], *deviations])
    return rows


_VERDICTS = {True: "yes", False: "NO", None: "not judged"}
HEADERS = [
    *("strategy", "model", "optimizer", "dtype", "devices", "steps", "same step", "largest loss deviation", "bound"),
    *("amplified rounding", "weights after"),
]
"""Of docs/parity.csv."""
_COUNTS = ["strategy", "cells", "same step", "not the same", "largest loss deviation in float64"]
_PAGE = """# Parity, cell by cell

**{same} of {judged} judged cells took the oracle's steps.** A cell is a strategy with a model, an optimizer, a dtype and
a number of devices. All cells are in [parity.csv](parity.csv). GitHub shows that file with a search field, and on the
docs site you can filter it below.

{table}

`make test-slow` writes this page and the file. {plain} cells are runs of {steps} steps on test-sized models, with every
strategy. {techniques} more have [techniques](techniques.md) and features of the models; `make test` runs pairs of these. In
each of them, the bytes sent equalled their prediction, and so did the bytes kept, wherever they are predicted.

## How to read a cell

* Every step is compared with the NumPy oracle. The loss deviation is the largest relative deviation at any step; in float32 it
  is relative to at least 0.1. The bound is 1e-12 in float64 and 1e-5 in float32; with `precision=bf16` it is
  [derived](same-step.md).
* "Weights after" is the largest absolute deviation of a weight after the last step. In float64 the bound is 1e-10; in float32
  weights are not bounded. Cells with techniques leave it out.
* "Amplified rounding" means that the curve moved away from the oracle's by more than the bound, but the same steps did not when
  they were taken one by one, or in float64.
"""


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


@functools.cache
def _source_digest(framework: str) -> str:
    folders = (ROOT / "common", ROOT / FRAMEWORKS[framework].rpartition(".")[2])
    sources = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]
