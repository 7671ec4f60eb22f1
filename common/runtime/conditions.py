"""Under which conditions a run was timed: as each process watched them, and as the result holds them."""

import dataclasses
from collections.abc import Sequence

LEAST_CORE_SECONDS = 1.0
"""The kernel counts whole ticks, a few milliseconds each: of some hundred of them a share is known to a few percent."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watched:
    """What one process watched, from the start of its first timed window to the end of its last.

    Attributes:
        order_sha256: The order sha256 of the first batches' indices into the data.
        compilations: The functions that it compiled or traced meanwhile.
        core_seconds: What the run's cores had to give; 0 if this process did not watch them, like the next two.
        busy_core_seconds: What of that was spent in processes, those of the run and others.
        stolen_core_seconds: What of that other virtual machines had.
    """

    order_sha256: str = ""
    compilations: int = 0
    core_seconds: float = 0.0
    busy_core_seconds: float = 0.0
    stolen_core_seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a run was timed under, beside what was asked for; each None or "" where nobody watched.

    Attributes:
        num_parameters: The number of parameters of the model.
        order_sha256: The order sha256 of the first batches' indices into the data.
        compilations: The functions that its processes compiled or traced while the clock ran.
        others_share: The share of its cores' time that processes of others had while the clock ran.
        stolen_share: The share that other virtual machines had.
    """

    num_parameters: int | None = None
    order_sha256: str = ""
    compilations: int = 0
    others_share: float | None = None
    stolen_share: float | None = None


def conditions(num_parameters: int, watched: Sequence[Watched], cpu_seconds: float) -> Conditions:
    """Puts together what the processes of a run watched.

    Args:
        num_parameters: The number of parameters of the model.
        watched: The watched by each process, rank 0 first, which also watched the cores.
        cpu_seconds: What all processes of the run had of the cores.
    """
    first = watched[0]

    def share(seconds: float) -> float | None:
        return max(0.0, seconds) / first.core_seconds if first.core_seconds >= LEAST_CORE_SECONDS else None

    return Conditions(
        num_parameters=num_parameters,
        order_sha256=first.order_sha256,
        compilations=sum(each.compilations for each in watched),
        others_share=share(first.busy_core_seconds - cpu_seconds),
        stolen_share=share(first.stolen_core_seconds),
    )
