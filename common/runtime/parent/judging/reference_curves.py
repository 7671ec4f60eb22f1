"""The oracle's curves, i.e. its losses and its state: computed as far as time allows, and kept between commands.

A kept curve is a directory `KEY/STEP` of the cache, with the files of a run directory. The key is made from everything that
affects the numbers. The number of steps does not, so a later run continues where an earlier one stopped.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError, SamestepError, WorkerFailed
from samestep.common.files.reading import Unreadable, read_bytes
from samestep.common.files.removing import discard
from samestep.common.files.writing import open_directory
from samestep.common.judging.reference_run import Curve, Rerun
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.measured import Measured
from samestep.common.runtime.parent.judging.cache import evict, hold
from samestep.common.runtime.state_file import read_state, write_state
from samestep.common.steps.log import Log, read_log
from samestep.common.strategy import Run
from samestep.common.workload import code
from samestep.common.workload.data.dataset import cache_directory, make_cache_directory

LEAST_STEPS = 20
"""How many steps are judged no matter how long the oracle takes; fewer are not worth starting it."""
CUT = ".cut"
"""The suffix of a curve that stopped for lack of time; the curve is removed once a longer one is kept."""


def reach_curve(
    run: Run,
    launch: Launch,
    measured: Measured,
    budget_seconds: float,
    rerun: Rerun,
    names: Collection[str] = (),
) -> Curve:
    """Takes the oracle towards the last step of a run, from the end of the longest kept curve.

    Args:
        run: The oracle's run.
        launch: How the run was started; names the state from which it continued.
        measured: The measurements of the judged run: its first step and its data.
        budget_seconds: How long the oracle may take beyond LEAST_STEPS. With infinity, the curve ends exactly at the last step,
            so the weights there are known; otherwise a curve beyond the last step is enough.
        rerun: Takes the oracle's steps.
        names: The arrays to read of a kept state that is not continued, as `read_state` takes them.
    """
    first, last = measured.first_step, run.steps
    folder = curve_folder(run, launch, measured.dataset_sha256)
    hold(folder)
    curve = _find(folder, first, last, budget_seconds < math.inf, names)
    deadline = time.monotonic() + budget_seconds
    while (target := _target(curve, first, last, deadline - time.monotonic())) > _reached(curve, first):
        more = rerun.steps(dataclasses.replace(run, steps=target), curve.state if curve else None)
        curve = more if curve is None else _joined(curve, more)
        keep_curve(curve, run, launch, folder)
    assert curve is not None, "a run has at least one step"
    return curve


def _target(curve: Curve | None, first: int, last: int, seconds: float) -> int:
    """Returns the step to take the oracle to, given what it has done and the seconds that are left."""
    if seconds == math.inf:
        return last
    reached = _reached(curve, first)
    affordable = int(seconds * len(curve.losses) / curve.log.seconds) if curve else 0
    if affordable < min(LEAST_STEPS, last - reached):
        affordable = 0
    return max(min(last, first + LEAST_STEPS), min(last, reached + affordable))


def _reached(curve: Curve | None, first: int) -> int:
    return curve.state.step if curve else first


def _joined(begun: Curve, more: Curve) -> Curve:
    return Curve(Log(begun.log.header, begun.log.windows + more.log.windows), more.state)


# --- the cache --------------------------------------------------------------------------------------------------------


def curve_folder(run: Run, launch: Launch, dataset_sha256: str) -> Path:
    """Returns the folder of an oracle's curves. Its name is a digest of everything that affects the numbers, including our code.

    Args:
        run: The oracle's run.
        launch: How the run was started; names the state from which it continued.
        dataset_sha256: The SHA-256 digest of the data.
    """
    try:
        started = "" if launch.start_from is None else _digest_saved(Path(launch.start_from))
    except Unreadable as error:
        raise ConfigError(f"--start-from {launch.start_from}: its state cannot be read any more: {error}.") from None
    described = {name: value for name, value in run.described().items() if name != "steps"}
    # NumPy's version, since its generators draw the weights and the order of the examples.
    numbers = [described, dataset_sha256, started, _source_digest(), np.__version__]
    if (folder := run.workload.model.facts.folder) is not None:
        # A user's model may change while its shapes stay the same: a file is edited, or a package has another version.
        numbers += [code.digests(folder), code.packages()]
    key = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:24]
    return curves_directory() / key


def _digest_saved(path: Path) -> str:
    from samestep.common.runtime.checkpoints.committed import digest_saved  # here: most runs start anew

    return digest_saved(path)


def curves_directory() -> Path:
    """Returns where all curves are kept."""
    return cache_directory() / "oracle"


@functools.cache
def _source_digest() -> str:
    return hashlib.sha256(b"".join(map(read_bytes, sources()))).hexdigest()


def sources() -> list[Path]:
    """Returns our files that affect what the oracle computes."""
    common = Path(__file__).parents[3]
    folders = (common / name for name in ("features", "reference", "techniques", "workload"))
    return sorted([*common.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))])


def _find(folder: Path, first: int, last: int, beyond: bool, names: Collection[str]) -> Curve | None:
    """Returns the kept curve that covers the most steps from `first` to `last`; None if there is none.

    Args:
        folder: From `curve_folder`.
        first: The first step.
        last: The step after the last one.
        beyond: Whether a curve that goes on after `last` is usable.
        names: The arrays to read of a curve that reaches `last`. Of a shorter one, which may be continued, all are read.
    """
    kept = _kept(folder)
    usable = [step for step in kept if beyond or step <= last]
    for step in sorted(usable, key=lambda step: (step < last, abs(step - last))):
        try:
            curve = read_curve(kept[step], names if step >= last else ())
            if first + len(curve.losses) == curve.state.step == step:
                return curve
        except (SamestepError, OSError):
            pass  # damaged, or just removed by another process
        discard(kept[step], is_changed=True)
    return None


def _kept(folder: Path) -> dict[int, Path]:
    """Returns the curves in a folder by their number of steps; anything else in the folder is ignored."""
    return {
        int(path.stem): path for path in folder.glob("[0-9]*") if re.fullmatch(rf"[0-9]+({re.escape(CUT)})?", path.name)
    }


def read_curve(directory: Path, names: Collection[str] = ()) -> Curve:
    """Reads the curve that a run of the oracle left in its directory.

    Args:
        directory: The directory.
        names: The arrays of its state to read, as `read_state` takes them.

    Raises:
        ConfigError: The directory holds no state, or no losses.
    """
    return Curve(read_log(directory), read_state(directory, names=names))


def keep_curve(curve: Curve, run: Run, launch: Launch, folder: Path) -> None:
    """Puts a curve into the cache, completely or not at all. A cache that cannot be written is no error; it costs time later.

    Args:
        curve: The curve.
        run: The oracle's run; the curve may end before its last step.
        launch: How it was started.
        folder: From `curve_folder`.
    """
    from samestep.common.steps.writing import write_log  # here: most references are kept already

    step = curve.state.step
    path = folder / f"{step}{CUT if step < run.steps else ''}"
    with contextlib.suppress(OSError, WorkerFailed):  # also if another process has put it there meanwhile
        make_cache_directory()
        open_directory(folder)
        if not path.exists():
            open_directory(whole := folder / f".{os.urandom(8).hex()}")
            try:
                write_json(whole / "config.json", as_config(run, launch))
                write_log(whole, curve.log)
                write_state(whole, curve.state)
                os.replace(whole, path)
            finally:
                discard(whole)
        for shorter, place in _kept(folder).items():
            if shorter < step and place.suffix == CUT:
                discard(place, is_changed=True)
    hold(folder)
    evict(folder.parent)
