"""The GPUs that each framework sees, and the checks on them: every strategy that can use them, in every precision that it has."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.catalog import framework_info, lacks, strategies_of
from samestep.common.cell import Cell
from samestep.common.mesh import AXES
from samestep.common.request import FRAMEWORKS
from samestep.common.runtime.measured import adapter
from samestep.common.runtime.parent.asking import Question, ask
from samestep.common.seconds.machine import Machine, load_machine, machines
from samestep.common.strategy import StrategyInfo
from samestep.common.techniques.used import for_other_hardware

WORKLOAD = "prose-gpt+layers=2+width=128+heads=4+context=64"
STEPS, BATCH_SIZE, ROUNDS = 20, 32, 2
"""The number of rounds: two show whether a run repeats bit for bit."""
TIMEOUT_SECONDS = 15
"""How long a row may make no progress before it is ended; its first step may take ten times as long. Other rows still run."""
PAIR = 2
ASKED_SECONDS = 120
"""The timeout for asking a framework, most of which is for an import from a cold disk."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU: its name in the driver, and its memory in bytes; 0 if the framework does not say."""

    name: str
    memory_bytes: int

    @property
    def machine(self) -> Machine | None:
        """The known machine with such GPUs: its name occurs in that of the GPU, and its memory is nearest."""
        words = self.name.lower().replace("-", " ").split()
        known = [load_machine(name) for name in machines() if name.partition("-")[0] in words]
        return min(known, key=lambda each: abs(each.memory_bytes - self.memory_bytes), default=None)


def find_gpus() -> dict[str, tuple[Gpu, ...]]:
    """Asks all installed frameworks in parallel which GPUs they see; frameworks that are not installed are left out.

    Raises:
        WorkerFailed: A framework cannot be imported.
    """
    asked = {
        framework: Question(
            module=f"{FRAMEWORKS[framework]}.observing.gpus",
            late=f"{framework} did not say within {ASKED_SECONDS} s which GPUs it sees; look at nvidia-smi.",
            failed=f"{framework} cannot be imported",
        )
        for framework in FRAMEWORKS
        if framework_info(framework).extra and not lacks(framework, "single")
    }
    answers = map(adapter(list[tuple[str, int]]).validate_python, ask([*asked.values()], ASKED_SECONDS))
    return {name: tuple(Gpu(*each) for each in found) for name, found in zip(asked, answers, strict=True)}


def settings() -> dict[str, object]:
    """Returns the settings of all checks, as for `samestep compare`."""
    return {
        "workload": WORKLOAD,
        "steps": STEPS,
        "batch_size": BATCH_SIZE,
        "devices": 1,
        "repeats": ROUNDS,
        "parity": True,
        "timeout_seconds": TIMEOUT_SECONDS,
    }


def list_checks(found: Mapping[str, Sequence[Gpu]]) -> list[Cell]:
    """Returns the cells to run.

    On one device a strategy computes in float32, and in two bytes if it supports that. Two devices with a GPU each do the same,
    over NCCL; two that have to share one GPU prove only the numbers, in float64 over gloo.

    Args:
        found: The GPUs that each framework sees.
    """
    return [
        Cell.parse(f"{framework}:{row.name}{_sizes(row)}").extended(settings)
        for framework, gpus in found.items()
        if gpus
        for row in strategies_of(framework)
        for settings in _settings(row, len(gpus))
    ]


def _sizes(row: StrategyInfo) -> str:
    """Returns the additional sizes of a model that a row can cut, since not every model has experts."""
    return "+experts=4" if any("stacked" in AXES[axis].cuts for axis in row.axes[:1]) else ""


def _settings(row: StrategyInfo, num_gpus: int) -> Iterator[Mapping[str, object]]:
    yield from _arithmetics(row)
    if row.axes and num_gpus < PAIR:
        yield {"devices": PAIR, "dtype": "float64"}
    elif row.axes:
        yield from ({"devices": PAIR, **settings} for settings in _arithmetics(row))


def _arithmetics(row: StrategyInfo) -> Iterator[Mapping[str, object]]:
    yield {}
    if _sizes(row):  # nobody judges a router in two bytes
        return
    for name, choices in for_other_hardware().items():
        yield from ({name: choice} for choice in choices if name not in row.refuses)
