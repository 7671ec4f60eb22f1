"""Where a result comes from: the machine, the commit, and the line that repeats the run."""

import os
import platform
import shlex
import subprocess
from pathlib import Path

from samestep.common.files.reading import memory_bytes
from samestep.common.flags import Scalar
from samestep.common.request import RunConfig
from samestep.common.run import arguments


def command(config: RunConfig) -> str:
    """Returns the line that repeats a run, without the place it was written to."""
    return shlex.join(["python", "-m", "samestep", "run", *arguments(config)])


def machine() -> dict[str, Scalar]:
    """Returns what the run ran on."""
    cpu = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": cpu or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
    }


def git_commit() -> str | None:
    """Returns the commit of a checkout; None if this is none."""
    line = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(line, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
