"""The full products: which cells there are, what they measured so far, and the page that shows it."""

import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
from pathlib import Path

from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell
from samestep.common.judging.parity import bound_of
from samestep.common.request import FRAMEWORKS, RunConfig
from samestep.common.runtime.records import RunResult
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.experiments.printing.text import github
from tests.cells import SIZED, USUAL_OPTIMIZERS, every_row, takes

ROOT = Path(__file__).parents[2]
STORE = ROOT / "build" / "parity"
PAGE = ROOT / "docs" / "parity.md"
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
        Product(cell, model, optimizer, _finest_dtype(cell), where) for (cell, where), model, optimizer in axes
    ]


def _finest_dtype(cell: str) -> str:
    config = Cell.parse(cell).apply_to(RunConfig())
    return strategy_info(config.framework, config.strategy).dtypes[-1]


def store(cell: Product, result: RunResult) -> None:
    """Keeps what a cell measured, so that an interrupted product resumes."""
    cell.stored.parent.mkdir(parents=True, exist_ok=True)
    parity = dataclasses.asdict(result.parity)
    cell.stored.write_text(json.dumps({**parity, "metric": result.metric_value}))


def record(result: RunResult) -> None:
    """Keeps the verdict on a cell with techniques or features, for the page."""
    config, parity = result.config, result.parity
    normalised = f"+batch_norm={config.batch_norm}" if "norm=" in result.workload else ""
    row = [f"{Cell.of(config)}{normalised}", result.workload, result.optimizer, result.dtype, result.mesh]
    reached = [_shown(parity.max_relative_loss), f"{bound_of(parity, result.dtype):.1e}", "yes" * parity.is_amplified]
    folder = STORE / _source_digest(result.framework) / "techniques"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(" ".join(row).encode()).hexdigest()[:16]
    (folder / f"{name}.json").write_text(json.dumps([*row, str(parity.steps), _VERDICTS[parity.passed], *reached]))


def write_page() -> None:
    """Writes docs/parity.md from every cell that the present code has measured.

    Several processes may measure: the last one that writes has seen what all of them stored.
    """
    STORE.mkdir(parents=True, exist_ok=True)
    with (STORE / "page.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        techniques = _technique_rows()
        plain = _plain_rows()
        parts = [_INTRODUCTION.format(count=len(plain), steps=STEPS), github(_HEADERS, plain)]
        parts += [_TECHNIQUES.format(count=len(techniques)), github(_TECHNIQUE_HEADERS, techniques)]
        PAGE.write_text("\n".join(parts) + "\n")


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
_WHAT = ["strategy", "model", "optimizer", "dtype", "devices"]
_HEADERS = [*_WHAT, "same step", "largest loss deviation", "weights after"]
_TECHNIQUE_HEADERS = [*_WHAT, "steps", "same step", "largest loss deviation", "bound", "amplified rounding"]
_INTRODUCTION = """# Parity, cell by cell

Written by `make test-slow`: {count} runs of {steps} steps each, on test-sized models. Every step is compared with the NumPy
oracle. The loss deviation is the largest relative deviation at any step; in float32 it is relative to at least 0.1. The
weight deviation is the largest absolute deviation after the last step. The bounds in float64 are 1e-12 for the loss and
1e-10 for the weights. In float32 the bound is 1e-5 for the loss, and weights are not bounded.
"""
_TECHNIQUES = """
## With techniques and features

{count} more runs, of `make test` too, with [techniques](techniques.md) and features of the models. What was sent equalled its
prediction in each of them, and so did the bytes that were kept, wherever they are predicted. With `precision=bf16` the bound
is [derived](same-step.md). Where it says amplified rounding, the curve left that of the oracle further than the bound, but the
same steps one by one, or in float64, did not.
"""


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def _source_digest(framework: str) -> str:
    folders = (ROOT / "common", ROOT / FRAMEWORKS[framework].rpartition(".")[2])
    sources = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]
