"""Re-enacts silent bugs, and prints what `samestep diff` says of each: python -m museum.reenacted.run [--json] [NAME...]."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from museum.reenacted.forked import fork_off
from museum.reenacted.row import Reenacted
from museum.reenacted.table import REENACTED
from samestep.common.errors import ParityFailed
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.verdict import RecordedVerdict, place
from samestep.common.steps.joining import read_run
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.diffing import diff
from samestep.experiments.recording.reruns import Reruns

STEPS = 8


class Reenactment:
    """Records scripts, each once, and judges them."""

    def __init__(self, below: Path) -> None:
        """Has none yet.

        Args:
            below: A folder for the records.
        """
        self._below = below
        self._sides: dict[tuple[str, ...], Reruns] = {}

    def judged(self, row: Reenacted) -> RecordedVerdict:
        """Says whether a bug takes other steps than the right script, with reruns where the place is not certain without."""
        a, b = self.side(row.command(False), "A"), self.side(row.command(True), "B")
        first = judge(a.run, b.run)
        is_found = first.exit_code == ParityFailed.exit_code and first.need in ("", "weights")
        return first if is_found and not row.is_slow else diff(a, b, STEPS).verdict

    def side(self, command: tuple[str, ...], name: str) -> Reruns:
        """Returns the record of a command, and what runs it again.

        Args:
            command: Its words, which begin with python or torchrun.
            name: "A" or "B".
        """
        if command not in self._sides:
            out = self._below / str(len(self._sides))
            start = ("-m", "torch.distributed.run") if command[0] == "torchrun" else ()
            fork_off((sys.executable, *start, *command[1:]), RecordOptions(str(out)), Path.cwd(), True)
            self._sides[command] = Reruns(read_run(out), out, name, fork_off, repeated=sys.maxsize)
        return self._sides[command]


def main(arguments: Sequence[str]) -> None:
    """Prints the verdict on each bug that is named, or on all.

    Args:
        arguments: The names, and --json.
    """
    names = [each for each in arguments if each != "--json"]
    with tempfile.TemporaryDirectory() as below:
        reenactment = Reenactment(Path(below))
        for row in REENACTED:
            if not names or row.name in names:
                verdict = reenactment.judged(row)
                where = place(verdict.first) if verdict.first else ""
                causes = [cause.name for cause in verdict.causes]
                found = {"name": row.name, "kind": verdict.kind, "where": where, "causes": causes}
                is_json = "--json" in arguments
                print(
                    json.dumps(found | {"headline": verdict.headline}) if is_json else f"{row.name}: {verdict.headline}"
                )
    sys.stdout.flush()
    os._exit(0)  # torch takes as long to end as a script takes


if __name__ == "__main__":
    main(sys.argv[1:])
