"""Judges two small scripts, with perturbed reruns of the first."""

import dataclasses
import functools
import itertools
import json
import tempfile
from pathlib import Path

from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import measure
from samestep.common.steps.joining import read_run
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.reruns import Reruns
from samestep.experiments.recording.start import prepared
from tests.recording.numpy_script import Script, run

RERUNS = 4


def recorded(script: Script, below: Path) -> RecordedRun:
    """A record of a script, in a new directory."""
    directory = next(path for number in itertools.count() if not (path := below / str(number)).exists())
    return read_run(run(script, directory))


@functools.cache
def run_of(script: Script) -> RecordedRun:
    """The steps of a script, which are recorded once for all the tests that judge them."""
    with tempfile.TemporaryDirectory() as below:
        found = recorded(script, Path(below))
        return dataclasses.replace(found, steps=[*found.steps])


def reruns_of(script: Script) -> list[RecordedRun]:
    """The reruns of a script."""
    return [run_of(dataclasses.replace(script, perturbed=seed)) for seed in range(RERUNS)]


def diff(a: Script, b: Script, is_measured: bool = True) -> RecordedVerdict:
    """The verdict on two scripts, with reruns of the first or without."""
    one, other = run_of(a), run_of(b)
    return judge(one, other, measure(one, reruns_of(a), pair(one, other)) if is_measured else None)


class Fake:
    """Runs the script of a command that is its fields."""

    def __init__(self, **changes: object) -> None:
        self.changes, self.runs = changes, []

    def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
        fields = json.loads(command[2])
        script = Script(**{name: tuple(each) if isinstance(each, list) else each for name, each in fields.items()})
        script = dataclasses.replace(script, perturbed=options.perturb, **self.changes)
        if options.float64:
            script = dataclasses.replace(script, dtype="float64", is_cast=True)
        self.runs.append(Path(options.out).name)
        run(dataclasses.replace(script, steps=options.stop_after or script.steps), prepared(Path(options.out)))


def side(script: Script, below: Path, name: str, rerun: Fake) -> Reruns:
    found = recorded(script, below)
    return Reruns(found, Path(found.name), name, rerun)
