"""The GPUs that each framework sees, each asked in a process of its own: a framework is never imported here."""

import dataclasses
import json
import subprocess
import sys

from samestep.common.catalog import framework_info, require
from samestep.common.errors import Unavailable, WorkerFailed
from samestep.common.request import FRAMEWORKS
from samestep.common.seconds.machine import Machine, load_machine, machines

TIMEOUT_SECONDS = 120
"""An import from a cold disk takes most of it."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU: what its driver calls it, and its memory in bytes; 0 where the framework does not say."""

    name: str
    memory_bytes: int

    @property
    def machine(self) -> Machine | None:
        """The machine of such GPUs whose rates samestep knows: its name occurs in the GPU's, and its memory is nearest."""
        words = self.name.lower().replace("-", " ").split()
        known = [load_machine(name) for name in machines() if name.partition("-")[0] in words]
        return min(known, key=lambda each: abs(each.memory_bytes - self.memory_bytes), default=None)


def find_gpus() -> dict[str, tuple[Gpu, ...]]:
    """Asks every installed framework, side by side; those that are not installed are left out.

    Raises:
        WorkerFailed: A framework cannot even be imported.
    """
    asked = {
        framework: subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", f"{FRAMEWORKS[framework]}.observing.gpus"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for framework in _installed()
    }
    try:
        return {framework: _answer(framework, process) for framework, process in asked.items()}
    finally:
        for process in asked.values():
            process.kill()


def _installed() -> list[str]:
    """Returns the frameworks that compute on devices and are here; the oracle's needs none."""
    found = []
    for framework in FRAMEWORKS:
        try:
            require(framework)
        except Unavailable:
            continue
        if framework_info(framework).extra:
            found.append(framework)
    return found


def _answer(framework: str, process: "subprocess.Popen[str]") -> tuple[Gpu, ...]:
    try:
        told, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise WorkerFailed(
            f"{framework} did not say within {TIMEOUT_SECONDS} s which GPUs it sees; look at nvidia-smi."
        ) from None
    if process.returncode:
        last = (errors.strip().splitlines() or ["it wrote nothing"])[-1]
        raise WorkerFailed(f"{framework} cannot be imported: {last}")
    return tuple(Gpu(name, memory) for name, memory in json.loads(told.splitlines()[-1]))
