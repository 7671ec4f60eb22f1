"""`samestep` whose reruns are forked off a process that has torch: python -m tests.recording.forked_reruns WORD..."""

import functools
from collections.abc import Sequence
from pathlib import Path

from museum.reenacted.forked import fork_off
from samestep.__main__ import main
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording import sides
from samestep.experiments.recording.reruns import Reruns


def rerun(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
    """Runs one of our scripts, which is a module as well."""
    program, script, *arguments = command
    module = f"tests.recording.scripts.{Path(script).stem}"
    fork_off((program, "-m", module, *arguments), options, directory, is_quiet)


if __name__ == "__main__":
    sides.Reruns = functools.partial(Reruns, rerun=rerun)
    main()
