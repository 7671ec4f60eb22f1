"""The environment variables by which engines tell a process its place: one row for each engine, the innermost first.

An engine may run inside another one: torchrun in an allocation of Slurm, Slurm's tasks in a pod. Each leaves its variables. The
innermost engine counts, because it is the one that started the process.
"""

import dataclasses
import re
from collections.abc import Mapping

from samestep.common.errors import ConfigError
from samestep.common.runtime.topology import RESTARTS, read_whole


@dataclasses.dataclass(frozen=True)
class Engine:
    """The names of the variables in which an engine tells a process its place; "" stands for one that it does not set.

    Attributes:
        name: The engine's name in messages.
        rank: The variable for the number of the process.
        world: The variable for the number of processes.
        local_rank: The variable for the number of the process among those of its host.
        attempt: The variable for how often the processes were started before.
        address: The variable that contains an address in the network of the processes.
        marker: A variable without which the others do not belong to this engine.
    """

    name: str
    rank: str
    world: str = ""
    local_rank: str = ""
    attempt: str = ""
    address: str = ""
    marker: str = ""


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a process in its run.

    Attributes:
        engine: The engine that assigned it.
        rank: The number of the process.
        local_rank: Its number on its host; None if the engine does not say.
        attempt: How often the run was started before.
        address: An address in the network of the run's processes; "" if the engine gives none.
        around: The engines inside which this one runs, the innermost first.
    """

    engine: Engine
    rank: int
    local_rank: int | None
    attempt: int
    address: str
    around: tuple[Engine, ...] = ()


BY_HAND = Engine("by hand", "RANK", "WORLD_SIZE", "LOCAL_RANK", RESTARTS, "MASTER_ADDR")
ENGINES = (
    dataclasses.replace(BY_HAND, name="torchrun", marker="TORCHELASTIC_RUN_ID"),
    dataclasses.replace(BY_HAND, name="Ray", marker="RAY_JOB_ID"),
    BY_HAND,
    Engine(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        address="OMPI_MCA_orte_hnp_uri",
    ),
    Engine("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    Engine(
        "Slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_RESTART_COUNT",
        "SLURM_LAUNCH_NODE_IPADDR",
        marker="SLURM_STEP_ID",  # a batch script has the others as well
    ),
    Engine("a TrainJob", "PET_NODE_RANK", "PET_NNODES", address="PET_MASTER_ADDR"),
    Engine("an indexed Job", "JOB_COMPLETION_INDEX"),
    Engine("SkyPilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", address="SKYPILOT_NODE_IPS"),
    Engine("dstack", "DSTACK_NODE_RANK", "DSTACK_NODES_NUM", address="DSTACK_MASTER_NODE_IP"),
)
"""The innermost first."""


def engines_of(environment: Mapping[str, str]) -> list[Engine]:
    """Returns the engines that started a process, the innermost first."""
    found = [each for each in ENGINES if each.rank in environment and each.marker in ("", *environment)]
    return [each for n, each in enumerate(found) if each.rank not in [inner.rank for inner in found[:n]]]


def find_place(environment: Mapping[str, str], processes: int) -> Place | None:
    """Finds the place that the innermost engine gave the current process; None if no engine started it.

    Args:
        environment: `os.environ`.
        processes: How many processes the run has.

    Raises:
        ConfigError: The engine started a different number of processes, or a variable is not a number.
    """
    found = engines_of(environment)
    if not found:
        return None
    engine, *around = found
    count = environment.get(engine.world)
    if count is not None and count != str(processes):
        inside = f" {said_why(engine, around)}" if around else ""
        raise ConfigError(
            f"{engine.world} is {count}, but the run was prepared for {processes} processes; start {processes}.{inside}"
        )
    local, attempt = environment.get(engine.local_rank), environment.get(engine.attempt)
    return Place(
        engine,
        read_whole(environment, engine.rank, 0, processes - 1),
        None if local is None else read_whole(environment, engine.local_rank, 0, processes - 1),
        0 if attempt is None else read_whole(environment, engine.attempt, 0, 10**9),
        _address(environment.get(engine.address, "")),
        tuple(around),
    )


def said_why(engine: Engine, around: list[Engine] | tuple[Engine, ...]) -> str:
    """Says which engine's variables count if there are several.

    Args:
        engine: The innermost engine.
        around: The engines around it.
    """
    others = " and ".join(f"{each.rank} of {each.name}" for each in around)
    return f"{engine.rank} of {engine.name} takes precedence over {others}, which started it."


def refuse_contradiction(rank: int, variable: str, environment: Mapping[str, str], processes: int) -> None:
    """Refuses a place given by hand that contradicts the one that an engine gave to the same process.

    Args:
        rank: The place given by hand.
        variable: The variable that gives it.
        environment: `os.environ`.
        processes: How many processes the run has; an engine that started a different number is ignored.

    Raises:
        ConfigError: They contradict each other.
    """
    for each in engines_of(environment):
        if each.rank != variable and environment.get(each.world) == str(processes) and processes > 1:
            other = read_whole(environment, each.rank, 0, processes - 1)
            if other != rank:
                raise ConfigError(
                    f"{variable} says that this is process {rank} of the run, and {each.rank} of {each.name} says {other}; "
                    f"unset {variable}, or start the processes without {each.name}."
                )


def _address(text: str) -> str:
    """Returns the first address in a variable, which may be alone, first in a list, or in a URI as Open MPI writes it."""
    found = re.match(r"\s*(?:\S*?://)?([^\s,:;/]+)", text)
    return found[1] if found else ""
