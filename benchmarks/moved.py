"""Checks whether the float64 losses and the final state of this version and another are the same, bit for bit.

`python -m benchmarks.moved OLD [CELL ...] [--store DIR]` runs the command of both versions, by default for every row and for some
twenty cells with techniques and features, and prints a line per cell. The results of the other version are kept in DIR, so it
runs only once.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from samestep.common.catalog import catalogue, strategy_info
from samestep.common.cell import Cell
from samestep.common.request import RunConfig

HERE = Path(__file__).parents[1]
GPT, NORM = "prose-gpt+layers=2+width=32+context=16", "digits-mlp+width=32+norm=batch"
DROPS, TIED = "prose-gpt+layers=2+width=32+context=16+dropout=0.1", "prose-gpt+layers=4+width=32+context=16+tied=true"
MORE = (
    ("torch:ddp+compress=int8", "digits-mlp+width=32"),
    ("torch:ddp+compress=powersgd+compress_warmup_steps=3", GPT),
    ("tf:mirrored+compress=int8", "digits-mlp+width=32"),
    ("tf:multi_worker_mirrored+compress=powersgd", "digits-mlp+width=32"),
    ("torch:ddp+batch_norm=sync", NORM),
    ("torch:fsdp+batch_norm=local", NORM),
    ("tf:mirrored+batch_norm=sync", NORM),
    ("tf:multi_worker_mirrored+batch_norm=frozen", NORM),
    ("torch:zero1+clip_norm=0.1+accumulation_steps=3", GPT),
    ("tf:parameter_server+clip_norm=0.1+accumulation_steps=3", "digits-mlp+width=32"),
    ("torch:pp+schedule=1f1b+microbatches=4+recompute=true", GPT),
    ("torch:tp", DROPS),
    ("torch:pp", DROPS),
    ("torch:hybrid", DROPS),
    ("tf:mirrored", DROPS),
    ("torch:pp", TIED),
    ("torch:hybrid", TIED),
    ("torch:fsdp+recompute=true+learning_rate_schedule=cosine+warmup_steps=5", TIED),
    ("tf:dtensor+accumulation_steps=2", TIED),
    ("torch:ddp+optimizer=sgd+overlap=false", "mnist-cnn+filters=4+hidden=16"),
    ("tf:mirrored+recompute=true+overlap=true", GPT),
    ("torch:single", "flights-ranker+embedding=4+hash_buckets=512"),
    ("tf:parameter_server", "flights-ranker+embedding=4+hash_buckets=512"),
)
"""Cells with techniques and features, and the workload of each."""


class Losses(BaseModel):
    """The part of `result.json` that is compared."""

    losses: list[float]


def main() -> None:
    """Compares every cell in both versions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("cells", nargs="*", help="only these (default: all)")
    parser.add_argument("--store", type=Path, help="where the other version's digests are kept")
    given = parser.parse_args()
    every = [(f"{framework}:{row.name}", "digits-mlp+width=32") for framework, row in catalogue()]
    pairs = [pair for pair in (*every, *MORE) if not given.cells or pair[0] in given.cells]
    equal = judged = 0
    for cell, workload in pairs:
        before, after = _kept(given.old, cell, workload, given.store), _digest(HERE, cell, workload)
        same, is_refused = before == after, before.startswith("exit") and after.startswith("exit")
        equal, judged = equal + (same and not is_refused), judged + (not is_refused)
        said = f"in neither ({after})" if is_refused else "equal" if same else f"NOT EQUAL ({before}, {after})"
        print(f"{cell} {workload}: {said}", flush=True)
    print(f"{equal} of {judged} cells are equal, bit for bit")
    raise SystemExit(0 if equal == judged else 1)


def _kept(old: Path, cell: str, workload: str, store: Path | None) -> str:
    """Returns the digest of the other version, from the store if the store has it."""
    if store is None:
        return _digest(old, cell, workload)
    file = store / hashlib.sha256(f"{cell} {workload}".encode()).hexdigest()[:24]
    if not file.exists():
        store.mkdir(parents=True, exist_ok=True)
        file.write_text(_digest(old, cell, workload))
    return file.read_text()


def _digest(checkout: Path, cell: str, workload: str) -> str:
    """Returns the digest of everything that a run computed, or how it ended if it has no result."""
    config = Cell.parse(cell).apply_to(RunConfig())
    devices = ["--devices", "2"] if strategy_info(config.framework, config.strategy).axes else []
    if config.strategy == "hybrid":
        devices = ["--mesh", "data=2,tensor=2"]
    flags = [*devices, "--workload", workload, "--dtype", "float64", "--steps", "20", "--batch-size", "48"]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "run")
        line = [sys.executable, "-m", "samestep", "run", cell, *flags, "--no-parity", "--keep-state", "--out", str(out)]
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        ended = subprocess.run(line, env=environment, cwd=scratch, capture_output=True, text=True, check=False)
        if ended.returncode:
            return f"exit {ended.returncode}: {' '.join(ended.stderr.split())[:200]}"
        hashed = hashlib.sha256()
        for loss in Losses.model_validate_json((out / "result.json").read_text()).losses:
            hashed.update(loss.hex().encode())
        with np.load(out / "state.npz") as state:
            for name in sorted(state.files):
                hashed.update(name.encode() + state[name].tobytes())
        return hashed.hexdigest()[:16]


if __name__ == "__main__":
    main()
