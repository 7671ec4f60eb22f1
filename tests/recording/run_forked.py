"""Prints the verdict on two commands, which are run in processes that are forked off this one: run_forked.py A B."""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from museum.reenacted.run import Reenactment
from samestep.experiments.recording.diffing import diff
from samestep.experiments.recording.reruns import STEPS

with tempfile.TemporaryDirectory() as below:
    reenactment = Reenactment(Path(below))
    a, b = (reenactment.side(tuple(shlex.split(line)), name) for line, name in zip(sys.argv[1:], "AB", strict=True))
    verdict = diff(a, b, STEPS).verdict
print(verdict.exit_code, verdict.headline, flush=True)
os._exit(0)  # torch takes as long to end as a script takes
