"""Checks whether runs that die after a random step and resume end in the same bits as a run that never died.

`python -m benchmarks.resuming.resumed [--store FILE] [CELL ...]` takes every synchronous row with two optimizers and two
dtypes, on 4 devices, and cells with techniques and features. For each it takes an undisturbed run, and a run with a checkpoint
every 5 steps, one of whose processes is killed with SIGKILL after a random step. It prints a table of cells with what differs.
With `--store`, earlier results are read from that file.
"""

import argparse
import collections
import dataclasses
import json
import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.resuming.struck_worker import STRUCK
from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from tests.cells import SIZED, every_row, usual

WORKER = "benchmarks.resuming.struck_worker"
STEPS, EVERY = 24, 5
FULL = {"steps": STEPS, "batch_size": 48, "devices": 4, "parity": False, "keep_state": True}
MLP, CNN, GPT = SIZED["mlp"], SIZED["cnn"], SIZED["transformer"]
FURTHER = (
    ("torch:ddp+clip_norm=0.1", MLP),
    ("torch:ddp+bucket_bytes=20000", GPT),
    ("torch:ddp+accumulation_steps=2+precision=bf16", GPT),
    ("torch:ddp+compress=bf16", MLP),
    ("torch:ddp+compress=int8", MLP),
    ("torch:ddp+compress=powersgd", GPT),
    ("torch:ddp+compile=true", MLP),
    ("torch:ddp+fixed_order=4", GPT),
    ("torch:ddp+batch_norm=sync", f"{CNN}+norm=batch"),
    ("torch:ddp", f"{GPT}+dropout=0.1"),
    ("torch:zero1+clip_norm=0.1+learning_rate_schedule=cosine+warmup_steps=4", GPT),
    ("torch:zero2+accumulation_steps=2", f"{GPT}+tied=true"),
    ("torch:fsdp+recompute=true+precision=bf16", f"{GPT}+dropout=0.1"),
    ("torch:pp+microbatches=4", f"{SIZED['mlp']}+dropout=0.1"),
    ("torch:tp+sequence_parallel=true", GPT),
    ("torch:hybrid+mesh=pipe=2,tensor=2", GPT),
    ("torch:c10d+ring=true", SIZED["ranker"]),
    ("tf:mirrored+compress=int8", MLP),
    ("tf:mirrored+clip_norm=0.1+learning_rate_schedule=cosine+warmup_steps=4", f"{GPT}+dropout=0.1"),
    ("tf:mirrored+batch_norm=sync", f"{CNN}+norm=batch"),
    ("tf:multi_worker_mirrored+accumulation_steps=2+precision=bf16", MLP),
    ("tf:multi_worker_mirrored+compress=powersgd", GPT),
    ("tf:dtensor+mesh=data=2,tensor=2", GPT),
    ("tf:parameter_server+clip_norm=0.1", SIZED["ranker"]),
)
"""Cells with techniques and features, and the workload of each."""


@dataclasses.dataclass(frozen=True)
class Case:
    """The request of two runs, of which one is killed.

    Attributes:
        cell: The strategy, with techniques.
        workload: The workload.
        optimizer: The optimizer.
        dtype: The dtype.
    """

    cell: str
    workload: str = MLP
    optimizer: str = "adamw"
    dtype: str = "float32"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        case: The case.
        struck: The process that was killed, and after which step, such as `rank-1 17`.
        resumed_at: The step of the checkpoint from which the next attempt began.
        differs: What differs in some bit: "losses", "state", or both; "" if nothing does.
    """

    case: Case
    struck: str
    resumed_at: int
    differs: str


def every_case() -> Iterator[Case]:
    """Yields the cases: every synchronous row with several devices, then the further cells."""
    for framework, row in every_row():
        if row.axes and row.synchronous(row.options()):
            workload = usual(row)
            for optimizer in ("sgd", "adamw"):
                for dtype in row.dtypes:
                    yield Case(f"{framework}:{row.name}", workload, optimizer, dtype)
    for cell, workload in FURTHER:
        yield Case(cell, workload)


def take(launcher: Launcher, case: Case, seed: int = 0) -> Outcome:
    """Takes an undisturbed run and one that dies once, and compares them.

    Args:
        launcher: A launcher with the worker `benchmarks.resuming.struck_worker`.
        case: The case.
        seed: The seed that determines which process dies, and when.
    """
    draw = random.Random(f"{seed} {case}")
    with tempfile.TemporaryDirectory() as below:
        asked = parse(_asked(case, Path(below, "whole")))
        roles = [spec.role for spec in asked.strategy.topology(asked) if not spec.serves]
        struck = f"{draw.choice(roles)} {draw.randrange(EVERY + 1, STEPS)}"
        whole, died = _run(launcher, case, Path(below, "whole")), _run(launcher, case, Path(below, "died"), struck)
    assert died.attempt == 2 and died.resumed_at is not None, (case, struck, died.attempt, died.resumed_at)
    parts = {
        "losses": died.losses != whole.losses,
        "state": died.state_sha256 != whole.state_sha256 or not whole.state_sha256,
    }
    return Outcome(case, struck, died.resumed_at, " and ".join(name for name, is_other in parts.items() if is_other))


def _asked(case: Case, out: Path, **more: object) -> RunConfig:
    asked = RunConfig(
        workload=case.workload, optimizer=case.optimizer, dtype=case.dtype, out=str(out), **{**FULL, **more}
    )
    return Cell.parse(case.cell).apply_to(dataclasses.replace(asked, devices=None) if "mesh=" in case.cell else asked)


def _run(launcher: Launcher, case: Case, out: Path, struck: str = "") -> RunResult:
    config = _asked(case, out, **({"save_every": str(EVERY), "restarts": 1} if struck else {}))
    return launcher.run(parse(config), launch_of(config), environment={STRUCK: struck})


def read_store(path: Path | None) -> list[Outcome]:
    """Returns the earlier outcomes; none without a file."""
    if path is None or not path.exists():
        return []
    values = [json.loads(line) for line in path.read_text().splitlines()]
    return [Outcome(**{**each, "case": Case(**each["case"])}) for each in values]


def table(found: Iterable[Outcome]) -> str:
    """Returns a table with a line for each cell, and how many of its runs ended in the same bits."""
    by_cell = collections.defaultdict(list)
    for each in found:
        by_cell[each.case.cell, each.case.workload].append(each)
    lines = ["| Cell | Workload | Runs | In the same bits | Otherwise |", "| --- | --- | --- | --- | --- |"]
    for (cell, workload), outcomes in by_cell.items():
        others = [f"{o.case.optimizer} {o.case.dtype}, killed {o.struck}: {o.differs}" for o in outcomes if o.differs]
        same = len(outcomes) - len(others)
        lines.append(f"| `{cell}` | `{workload}` | {len(outcomes)} | {same} | {'; '.join(others) or 'none'} |")
    return "\n".join(lines)


def main() -> None:
    """Takes the cases, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", help="cells to take, of those of the table; all, unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path, default=None)
    given = parser.parse_args()
    found = read_store(given.store)
    taken = {each.case for each in found}
    with Launcher(WORKER) as launcher:
        for case in every_case():
            if case in taken or (given.cells and case.cell not in given.cells):
                continue
            found.append(outcome := take(launcher, case, given.seed))
            if given.store is not None:
                with given.store.open("a") as file:
                    file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
