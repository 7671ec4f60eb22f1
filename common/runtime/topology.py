"""Which processes a run consists of, and who the present process is.

A topology names no address: `${host0}` and `${port0}` stand for where process 0 is and a free port there, and whoever
starts the processes fills them in.
"""

import dataclasses
import json
import string
from collections.abc import Mapping, Sequence

from common.config import RunConfig
from common.errors import ConfigError
from common.mesh import Mesh


@dataclasses.dataclass(frozen=True)
class ProcessSpec:
    """One process of a run.

    Attributes:
        role: Its name in logs and messages, such as "rank-0" or "ps-1".
        node: The machine it runs on, from 0.
        environment: What tells it who it is and where the others are, with placeholders for addresses.
        serves: It never finishes by itself; it is stopped when the others are done.
        expendable: If it dies, the run goes on, as long as another such process is left.
    """

    role: str
    node: int
    environment: Mapping[str, str]
    serves: bool = False
    expendable: bool = False


def num_devices(config: RunConfig) -> int:
    """The devices of a checked configuration."""
    return Mesh.parse(config.mesh or "data=1").size


def one_process(config: RunConfig) -> list[ProcessSpec]:
    """A single process that drives every device."""
    return [ProcessSpec("rank-0", 0, {})]


def ranks(config: RunConfig) -> list[ProcessSpec]:
    """One process per device, as torchrun starts them."""
    count = num_devices(config)
    return [
        ProcessSpec(
            f"rank-{rank}",
            0,
            {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "${host0}",
                "MASTER_PORT": "${port0}",
            },
        )
        for rank in range(count)
    ]


def ranks_and_server(config: RunConfig) -> list[ProcessSpec]:
    """One process per device, as in `ranks`, and one more, the last, that holds parameters for them."""
    specs = ranks(dataclasses.replace(config, mesh=f"data={num_devices(config) + 1}"))
    return [*specs[:-1], dataclasses.replace(specs[-1], role="server-0")]


def workers(config: RunConfig) -> list[ProcessSpec]:
    """One TensorFlow worker per device, each told of all by TF_CONFIG; the first is the chief."""
    count = num_devices(config)
    return tf_cluster({"worker": count})


def clients(config: RunConfig) -> list[ProcessSpec]:
    """As many TensorFlow workers as the option `clients` says, which share the devices."""
    count = int(config.options["clients"] or 1)
    return one_process(config) if count == 1 else tf_cluster({"worker": count})


def served(config: RunConfig) -> list[ProcessSpec]:
    """A chief, one worker per device, and as many servers as the option `parameter_servers` says.

    Asynchronous, the chief hands a dead worker's updates to the others.
    """
    jobs = {"chief": 1, "worker": num_devices(config), "ps": int(config.options["parameter_servers"] or 1)}
    expendable = ("worker",) if config.options["consistency"] == "async" else ()
    return tf_cluster(jobs, ("worker", "ps"), expendable)


def tf_cluster(
    jobs: Mapping[str, int], serving: Sequence[str] = (), expendable: Sequence[str] = ()
) -> list[ProcessSpec]:
    """A cluster as TensorFlow describes it to each of its tasks.

    Args:
        jobs: Name of the job -> number of its tasks; the first task of all has rank 0.
        serving: The jobs that only serve.
        expendable: The jobs that may lose a process.
    """
    tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
    addresses = {task: f"${{host{rank}}}:${{port{rank}}}" for rank, task in enumerate(tasks)}
    cluster = {job: [addresses[job, index] for index in range(count)] for job, count in jobs.items()}
    return [
        ProcessSpec(
            f"{job}-{index}",
            0,
            {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})},
            job in serving,
            job in expendable,
        )
        for job, index in tasks
    ]


def resolve(spec: ProcessSpec, addresses: Sequence[tuple[str, int]]) -> dict[str, str]:
    """The environment of a process once every process has an address.

    Args:
        spec: The process.
        addresses: Host and free port of each process, in the topology's order.
    """
    names = {f"host{i}": host for i, (host, _) in enumerate(addresses)}
    names |= {f"port{i}": str(port) for i, (_, port) in enumerate(addresses)}
    return {name: string.Template(value).substitute(names) for name, value in spec.environment.items()}


def who_am_i(specs: Sequence[ProcessSpec], environment: Mapping[str, str]) -> int:
    """The index of the present process in its topology, from the environment alone.

    Args:
        specs: The run's topology.
        environment: `os.environ`; identity comes from RANK or from TF_CONFIG.

    Raises:
        ConfigError: The environment does not say, or describes another number of processes.
    """
    missing = [name for name in specs[0].environment if name not in environment]
    if missing:
        raise ConfigError(f"{', '.join(missing)} is not set; start the run by the lines that --prepare printed.")
    count = environment.get("WORLD_SIZE")
    if "WORLD_SIZE" in specs[0].environment and count != str(len(specs)):
        raise ConfigError(f"WORLD_SIZE is {count}, but the run was prepared for {len(specs)} processes; start as many.")
    if "TF_CONFIG" in specs[0].environment:
        tasks = [json.loads(spec.environment["TF_CONFIG"])["task"] for spec in specs]
        return tasks.index(json.loads(environment["TF_CONFIG"])["task"])
    return int(environment["RANK"]) if "RANK" in specs[0].environment else 0
