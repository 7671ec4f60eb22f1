"""Judges two small scripts, with perturbed reruns of the first."""

import dataclasses
import itertools
from pathlib import Path

from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.measured import measure
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.steps.joining import read_run
from samestep.common.steps.recorded_run import RecordedRun
from tests.recording.numpy_script import Script, run

RERUNS = 4


def recorded(script: Script, below: Path) -> RecordedRun:
    """A record of a script, in a new directory."""
    directory = next(path for number in itertools.count() if not (path := below / str(number)).exists())
    return read_run(run(script, directory))


def diff(a: Script, b: Script, below: Path, reruns: int = RERUNS) -> RecordedVerdict:
    """The verdict on two scripts."""
    one, other = recorded(a, below), recorded(b, below)
    pairing = pair(one, other)
    perturbed = [recorded(dataclasses.replace(a, perturbed=seed), below) for seed in range(reruns)]
    return judge(one, other, measure(one, perturbed, pairing) if perturbed else None, pairing)
