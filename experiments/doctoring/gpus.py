"""The GPUs that each framework sees, each asked in a separate process, since no framework is imported here."""

import dataclasses

from samestep.common.catalog import framework_info, lacks
from samestep.common.request import FRAMEWORKS
from samestep.common.runtime.measured import adapter
from samestep.common.runtime.parent.asking import Question, ask
from samestep.common.seconds.machine import Machine, load_machine, machines

TIMEOUT_SECONDS = 120
"""The timeout, most of which is for an import from a cold disk."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU: its name in the driver, and its memory in bytes; 0 if the framework does not say."""

    name: str
    memory_bytes: int

    @property
    def machine(self) -> Machine | None:
        """The machine with such GPUs among those that samestep knows: its name occurs in the GPU's, and its memory is nearest."""
        words = self.name.lower().replace("-", " ").split()
        known = [load_machine(name) for name in machines() if name.partition("-")[0] in words]
        return min(known, key=lambda each: abs(each.memory_bytes - self.memory_bytes), default=None)


def find_gpus() -> dict[str, tuple[Gpu, ...]]:
    """Asks every installed framework in parallel; those that are not installed are left out.

    Raises:
        WorkerFailed: A framework cannot be imported.
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
