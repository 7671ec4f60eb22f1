"""The GPUs that each framework sees, each asked in a process of its own: a framework is never imported here."""

import dataclasses

from samestep.common.catalog import framework_info, lacks
from samestep.common.request import FRAMEWORKS
from samestep.common.runtime.measured import adapter
from samestep.common.runtime.parent.asking import Question, ask
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
        framework: Question(
            module=f"{FRAMEWORKS[framework]}.observing.gpus",
            late=f"{framework} did not say within {TIMEOUT_SECONDS} s which GPUs it sees; look at nvidia-smi.",
            failed=f"{framework} cannot be imported",
        )
        for framework in FRAMEWORKS
        if framework_info(framework).extra and not lacks(framework, "single")
    }
    answers = map(adapter(list[tuple[str, int]]).validate_python, ask([*asked.values()], TIMEOUT_SECONDS))
    return {name: tuple(Gpu(*each) for each in found) for name, found in zip(asked, answers, strict=True)}
