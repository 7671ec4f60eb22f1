"""Records of small scripts, with everything that the page on records can show."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.joining import read_run
from samestep.common.steps.record import RecordedStep, header_frame, rank_file, step_frame
from samestep.experiments.page.records.gathered import ShownTensor
from tests.recording.numpy_script import Script, run
from tests.sharing import made_once

COMMAND = ("python", '<script>alert("x")</script>')


PAIRS = {
    "healthy": ("a", "two"),
    "sum_for_mean": ("a", "sum_for_mean"),
    "update_times": ("a", "update_times"),
    "no numbers": ("bare-0", "bare-1"),
    "markup": ("bare-0",),
}


def made_pairs(factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Two records each, or one: healthy ones and wrong ones, with reruns, without, and without statistics."""
    below = made_once(factory, "pairs-of-records", _make)
    return {name: [below / each for each in names] for name, names in PAIRS.items()}


def _make(below: Path) -> None:
    script = Script(steps=5)
    a = run(script, below / "a")
    for seed in range(2):
        run(script, a / "reruns" / f"perturbed-{seed}-0", perturbed=seed)
    run(script, below / "two", world=2)
    for mistake in ("sum_for_mean", "update_times"):
        run(script, below / mistake, world=2, mistake=mistake)
    for number in range(2):
        _bare(a, below / f"bare-{number}", number)


def _bare(a: Path, directory: Path, off: int) -> None:
    """A record of which only losses were kept; one loss is not finite."""
    directory.mkdir()
    header = dataclasses.replace(read_run(a).header, command=COMMAND)
    steps = [RecordedStep(number, (float("nan") if number == 2 else number + off * 1e-9,)) for number in range(4)]
    (directory / rank_file(0)).write_bytes(header_frame(header) + b"".join(map(step_frame, steps)))


def shown(name: str, differs: bool) -> ShownTensor:
    """A tensor of the step that is shown."""
    return ShownTensor(name, np.ones(8), np.full(8, 2.0), 1e6 if differs else 1.0, differs, 1e-6)
