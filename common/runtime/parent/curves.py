"""The cache of the oracle's curves: losses and last state of every run of it, kept between commands."""

import hashlib
import json
import os
import shutil
from pathlib import Path

from samestep.common.request import Launch
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import cache_directory


def curve_path(run: Run, launch: Launch, dataset_sha256: str) -> Path:
    """Where the curve of a run of the oracle is kept: by everything that decides its numbers, its own code included.

    Args:
        run: The oracle's.
        launch: For the state that it continues.
        dataset_sha256: Of the data.
    """
    started = b"" if launch.start_from is None else (Path(launch.start_from) / "state.npz").read_bytes()
    numbers = [run.described(), dataset_sha256, hashlib.sha256(started).hexdigest(), _source_digest()]
    key = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:24]
    return cache_directory() / "oracle" / key


def _source_digest() -> str:
    common = Path(__file__).parents[2]
    sources = [common / "batch.py", *sorted(common.glob("workload/**/*.py")), *sorted(common.glob("reference/**/*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def keep_curve(directory: Path, path: Path) -> None:
    """Copies a curve into the cache, whole or not at all; a cache that cannot be written costs time only.

    Args:
        directory: The run directory of the oracle.
        path: From `curve_path`.
    """
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "metrics.jsonl", "state.npz"):
            shutil.copy(directory / name, temporary / name)
        os.replace(temporary, path)
    except OSError:  # or another run has put the same curve there in the meantime
        shutil.rmtree(temporary, ignore_errors=True)
