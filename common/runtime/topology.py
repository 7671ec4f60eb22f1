"""The processes of a run, and which of them the current process is.

A topology holds no addresses: `${host0}` and `${port0}` stand for the host of process 0 and a free port there. They are filled
in when the processes are started.
"""

import dataclasses
import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.request import MAX_PROCESSES
from samestep.common.strategy import ProcessSpec, Run

LAUNCHED_AT = "SAMESTEP_LAUNCHED_AT"
"""Set by our launcher: the time of the command (`time.time()`)."""
LAUNCHER = "SAMESTEP_LAUNCHER"
"""Set by our fork server: the id and the start time of our launcher's process."""
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""How often the processes were started before; set by torchrun and our launcher."""
UNEVALUATED = "SAMESTEP_UNEVALUATED"
"""Set by our launcher if only the losses and the state are needed, so held-out examples are not evaluated."""
TIMEOUT = "SAMESTEP_TIMEOUT_SECONDS"
"""Set by a worker for its strategy: how long it may wait for other processes."""


def one_process(run: Run) -> list[ProcessSpec]:
    """Returns a single process that drives every device."""
    return [ProcessSpec("rank-0", {})]


def ranks(run: Run, further: int = 0) -> list[ProcessSpec]:
    """Returns one process per device, as torchrun starts them.

    Args:
        run: The run.
        further: The number of further processes.
    """
    count = run.num_devices + further
    _check_count(count)
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "${host0}", "MASTER_PORT": "${port0}"}
    return [
        ProcessSpec(f"rank-{rank}", {"RANK": str(rank), "LOCAL_RANK": str(rank), **shared}) for rank in range(count)
    ]


def ranks_and_server(run: Run) -> list[ProcessSpec]:
    """Returns one process per device, as in `ranks`, and one more, the last, that holds parameters for them."""
    *workers, server = ranks(run, further=1)
    return [*workers, dataclasses.replace(server, role="server-0")]


def workers(run: Run) -> list[ProcessSpec]:
    """Returns one TensorFlow worker per device, each given all addresses by TF_CONFIG; the first is the chief."""
    return tf_cluster({"worker": run.num_devices})


def clients(run: Run) -> list[ProcessSpec]:
    """Returns as many TensorFlow workers as the option `clients` says, which share the devices."""
    count = run.options.clients
    return one_process(run) if count == 1 else tf_cluster({"worker": count})


def chief_workers_and_servers(run: Run) -> list[ProcessSpec]:
    """Returns a chief, one worker per device, and as many servers as the option `parameter_servers` says.

    In asynchronous mode, the chief hands a dead worker's updates to the others.
    """
    jobs = {"chief": 1, "worker": run.num_devices, "ps": run.options.parameter_servers}
    expendable = () if run.asked.is_serial else ("worker",)
    return tf_cluster(jobs, ("worker", "ps"), expendable)


def tf_cluster(
    jobs: Mapping[str, int], serving: Sequence[str] = (), expendable: Sequence[str] = ()
) -> list[ProcessSpec]:
    """Returns a cluster as TensorFlow describes it to each of its tasks.

    Args:
        jobs: Name of the job -> number of its tasks; the first task of all has rank 0.
        serving: The jobs that only serve.
        expendable: The jobs that may lose a process.
    """
    _check_count(sum(jobs.values()))
    tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
    addresses = {task: f"${{host{rank}}}:${{port{rank}}}" for rank, task in enumerate(tasks)}
    cluster = {job: [addresses[job, index] for index in range(count)] for job, count in jobs.items()}
    shared = json.dumps(cluster)  # once: for a thousand processes it is long
    return [
        ProcessSpec(
            f"{job}-{index}",
            {"TF_CONFIG": f'{{"cluster": {shared}, "task": {json.dumps({"type": job, "index": index})}}}'},
            job in serving,
            job in expendable,
        )
        for job, index in tasks
    ]


def _check_count(processes: int) -> None:
    if processes > MAX_PROCESSES:
        raise ConfigError(
            f"the run takes {processes} processes; give fewer devices, at most {MAX_PROCESSES} processes."
        )


def bypass_proxies(hosts: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Returns variables with which a process connects to its peers directly even if `http_proxy` is set, which gRPC obeys.

    Args:
        hosts: The hosts of the peers.
        environment: Its variables may name other hosts that are reached directly.
    """
    peers = ",".join(dict.fromkeys(hosts))
    return {name: ",".join(filter(None, [environment.get(name), peers])) for name in ("no_proxy", "NO_PROXY")}


def fill_in(spec: ProcessSpec, addresses: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Fills the addresses into the environment of a process.

    Args:
        spec: The process.
        addresses: Host and free port of each process, in the topology's order.
    """
    names = {f"host{i}": host for i, (host, _) in enumerate(addresses)}
    names |= {f"port{i}": str(port) for i, (_, port) in enumerate(addresses)}
    return {name: string.Template(value).substitute(names) for name, value in spec.environment.items()}


def own_index(specs: Sequence[ProcessSpec], environment: Mapping[str, str]) -> int:
    """Finds the current process in its topology, from the environment alone.

    Args:
        specs: The run's topology.
        environment: `os.environ`; identity comes from RANK or from TF_CONFIG.

    Raises:
        ConfigError: The environment does not say, or describes another number of processes.
    """
    wanted = specs[0].environment
    missing = [name for name in wanted if name not in environment]
    if missing:
        names = f"{', '.join(missing)} {'are' if missing[1:] else 'is'}"
        raise ConfigError(f"{names} not set; start the run by the lines that --prepare printed.")
    count = environment.get("WORLD_SIZE")
    if "WORLD_SIZE" in wanted and count != str(len(specs)):
        raise ConfigError(
            f"WORLD_SIZE is {count}, but the run was prepared for {len(specs)} processes; start {len(specs)}."
        )
    if "TF_CONFIG" in wanted:
        return _own_task(specs, environment["TF_CONFIG"])
    if "RANK" not in wanted:
        return 0
    read_whole(environment, "MASTER_PORT", 1, 2**16 - 1)
    read_whole(environment, "LOCAL_RANK", 0, len(specs) - 1)
    return read_whole(environment, "RANK", 0, len(specs) - 1)


def read_whole(environment: Mapping[str, str], name: str, least: int, most: int) -> int:
    """Reads a whole number from the environment.

    Args:
        environment: `os.environ`.
        name: The name of the variable.
        least: The smallest valid number.
        most: The largest valid number.

    Raises:
        ConfigError: The variable is not a whole number, or is out of bounds.
    """
    text = environment[name]
    if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
        raise ConfigError(f"{name} is '{text}'; give a whole number from {least} to {most}.")
    return int(text)


def _own_task(specs: Sequence[ProcessSpec], text: str) -> int:
    """Returns the task that a TF_CONFIG names, if it describes as many tasks as the run has."""
    expected = [json.loads(spec.environment["TF_CONFIG"]) for spec in specs]
    try:
        given = json.loads(text)
        sizes, wanted = ({job: len(tasks) for job, tasks in c["cluster"].items()} for c in (given, expected[0]))
        if sizes == wanted:
            return [each["task"] for each in expected].index(given["task"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise ConfigError(
        f"TF_CONFIG is '{text}', which is not a task of this run; start it by the lines that --prepare printed."
    )


def trace_file(directory: Path, role: str) -> Path:
    """Returns the file for a process's activities in the traced steps, until the parent joins those of all processes.

    Args:
        directory: The run directory.
        role: The role of the process.
    """
    return directory / f"trace-{role}.json"
