"""Plants mistakes in public scripts, one at a time, and asks `samestep diff` about each, with its reruns.

    python -m benchmarks.public.mistakes torch --sources DIR [--store DIR] [NAME ...]
    python -m benchmarks.public.mistakes tf --sources DIR [--store DIR] [NAME ...]

The mistakes are in `benchmarks.public.planted`, together with harmless changes. For DIR, see `benchmarks.public.scripts`; a NAME
is a part of a script's name. The exit code is 1 if a change is judged differently than expected.
"""

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.public.forks import record
from benchmarks.public.planted import PLANTED, Planted
from benchmarks.public.scripts import SCRIPTS, Trial, begun
from samestep.common.errors import ParityFailed, WorkerFailed
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.steps.joining import read_run
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.diffing import diff
from samestep.experiments.recording.reruns import STEPS, Reruns


def side(trial: Trial, name: str) -> Reruns:
    """Records a script again; returns the record, and how to rerun it.

    Args:
        trial: The prepared script.
        name: "A" or "B".
    """

    def rerun(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
        if not record(trial.script.framework, command[1:], trial.work, trial.script.environment, options):
            raise WorkerFailed(f"{trial.script.name} failed.")

    trial.record("one", trial.script.arguments)
    directory = trial.home / "records" / "one"
    run = read_run(directory)
    header = dataclasses.replace(run.header, command=("python", *run.header.command))
    return Reruns(dataclasses.replace(run, header=header), directory, name, rerun, is_quiet=True)


def planted(change: Planted, trial: Trial, sources: Path) -> Trial:
    """Returns a copy of a script with a change.

    Args:
        change: The change.
        trial: The script.
        sources: The folder of the clones.
    """
    other = dataclasses.replace(trial, home=trial.home / change.name.replace(" ", "-"))
    shutil.rmtree(other.home, ignore_errors=True)
    other.prepare(sources)
    path = other.work / (change.file or trial.script.file)
    source = path.read_text()
    assert change.old in source, (change.script, change.name)
    path.write_text(source.replace(change.old, change.new, 1))
    return other


def is_as_expected(change: Planted, verdict: RecordedVerdict) -> bool:
    """Returns whether a change was judged as expected.

    Args:
        change: The change.
        verdict: The verdict on it.
    """
    names = [cause.name for cause in verdict.causes]
    if not change.is_wrong:
        return verdict.exit_code == 0
    return verdict.exit_code == ParityFailed.exit_code and names == ([change.expected] if change.expected else [])


def main() -> None:
    """Plants the mistakes, and prints a table of the verdicts."""
    given, sources, store = begun(__doc__, "runs/planted")
    num_other = 0
    print("| script | change | said | |\n|--|--|--|--|")
    for script in (each for each in SCRIPTS if each.framework == given.framework):
        changes = [each for each in PLANTED if each.script == script.name]
        if not changes or not any(name in script.name for name in given.names or [""]):
            continue
        trial = Trial(script, store / script.name.replace("/", "."))
        trial.prepare(sources)
        a = side(trial, "A")
        for change in changes:
            verdict = diff(a, side(planted(change, trial, sources), "B"), STEPS).verdict
            is_right = is_as_expected(change, verdict)
            num_other += not is_right
            print(
                f"| {script.name} | {change.name} | {verdict.headline} | {'' if is_right else 'NOT AS LISTED'} |",
                flush=True,
            )
    sys.exit(bool(num_other))


if __name__ == "__main__":
    main()
