"""Finds which process of its run the current one is, and meets the others."""

import fcntl
import os
import platform
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from samestep.common.files.reading import Unreadable, memory_bytes, read_bytes
from samestep.common.runtime.directory import read_error, reserve_error
from samestep.common.runtime.engines.rendezvous import Arrival, find_differences, meet, read_hosts
from samestep.common.runtime.engines.table import (
    BY_HAND,
    Place,
    engines_of,
    find_place,
    refuse_contradiction,
    said_why,
)
from samestep.common.runtime.topology import LAUNCHED_AT, RESTARTS, bypass_proxies, fill_in, own_index, read_whole
from samestep.common.strategy import ProcessSpec

LOOPBACK = "127.0.0.1"
LOOK_SECONDS = 1.0
"""How often a process checks whether the process that started it still exists."""
PATIENCE = 0.8
"""The share of the run's timeout after which a process stops waiting for the others."""
_INTERFACES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_ASK_ADDRESS = 0x8915
"""The ioctl SIOCGIFADDR."""


def take_place(specs: Sequence[ProcessSpec], environment: MutableMapping[str, str]) -> int:
    """Finds which process of its run the current one is.

    Args:
        specs: The run's topology.
        environment: `os.environ`, which gets the number of the attempt.

    Raises:
        ConfigError: Nothing says which one it is, or two sources contradict each other.
    """
    wanted, processes = specs[0].environment, len(specs)
    if wanted and all(name in environment for name in wanted):  # everything is set already
        index = own_index(specs, environment)
        read_whole({RESTARTS: "0", **environment}, RESTARTS, 0, 10**9)
        if LAUNCHED_AT not in environment and "TORCHELASTIC_RUN_ID" not in environment:
            refuse_contradiction(index, BY_HAND.rank if BY_HAND.rank in wanted else "TF_CONFIG", environment, processes)
        return index
    place = None if LAUNCHED_AT in environment else find_place(environment, processes)
    if place is None:
        return own_index(specs, environment)
    if place.around and place.rank == 0:
        print(f"samestep: {said_why(place.engine, place.around)}", file=sys.stderr, flush=True)
    environment.setdefault(RESTARTS, str(place.attempt))
    return place.rank


def join(
    directory: Path,
    specs: Sequence[ProcessSpec],
    index: int,
    environment: MutableMapping[str, str],
    timeout_seconds: float,
    versions: Mapping[str, str],
) -> None:
    """Meets the other processes of a run that our launcher did not start, and sets the variables that the strategy reads.

    Args:
        directory: The run directory.
        specs: The run's topology.
        index: The place of this process.
        environment: `os.environ`; variables that are already set are kept.
        timeout_seconds: The timeout of the run.
        versions: The versions of the packages that decide the run's numbers.

    Raises:
        WorkerFailed: Not all of them came, or they do not share the directory.
    """
    if LAUNCHED_AT in environment:
        return
    if [*engines_of(environment), BY_HAND][0] is not BY_HAND:  # what is started by hand may outlive its shell
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True, name="parent-watch").start()
    if index == 0 and read_error(directory):  # of an earlier attempt
        reserve_error(directory)
    place = None if _has_all(environment, specs) else find_place(environment, len(specs))
    with socket.socket() as free:  # keeps the port until all have come
        free.bind(("", 0))
        address = own_address(environment.get("MASTER_ADDR") or (place.address if place else ""))
        own = Arrival(os.urandom(8).hex(), own_host(), (address, free.getsockname()[1]), {**own_facts(), **versions})
        met = meet(directory, [spec.role for spec in specs], index, own, PATIENCE * timeout_seconds)
    if index == 0 and (differences := find_differences(read_hosts(directory, [spec.role for spec in specs]))):
        print(f"samestep: the hosts of this run differ: {differences}", file=sys.stderr, flush=True)
    _connect(environment, specs, index, met, place)


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent has ended, since nothing else ends a process that its engine has lost."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)  # it may be inside a collective, where no handler would run


def _has_all(environment: Mapping[str, str], specs: Sequence[ProcessSpec]) -> bool:
    """Returns whether all variables that the strategy reads are already set."""
    return all(name in environment for name in specs[0].environment)


def _connect(
    environment: MutableMapping[str, str],
    specs: Sequence[ProcessSpec],
    index: int,
    met: Sequence[Arrival],
    place: Place | None,
) -> None:
    """Sets the variables that the strategy reads, and those by which the hosts reach each other."""
    is_one_host = len({each.host for each in met}) == 1
    addresses = [(LOOPBACK if is_one_host else host, port) for host, port in (each.address for each in met)]
    if not is_one_host:
        _set(environment, dict.fromkeys(_INTERFACES, interface_of(met[index].address[0])))
    if not _has_all(environment, specs):
        _set(environment, fill_in(specs[index], addresses) | _local(met, index, place))
    environment.update(bypass_proxies((host for host, _ in addresses), environment))


def _set(environment: MutableMapping[str, str], names: Mapping[str, str]) -> None:
    """Sets variables that have a value and are not set yet."""
    for name, value in names.items():
        if value:
            environment.setdefault(name, value)


def _local(met: Sequence[Arrival], index: int, place: Place | None) -> dict[str, str]:
    """Returns the place of a process among those of its host, as the engine gave it or else in the order of the ranks."""
    here = [number for number, each in enumerate(met) if each.host == met[index].host]
    local = here.index(index) if place is None or place.local_rank is None else place.local_rank
    return {"LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(len(here))}


def own_host() -> str:
    """Returns an identifier of this host: its boot, and the network namespace of the process."""
    try:
        boot = read_bytes(Path("/proc/sys/kernel/random/boot_id")).decode().strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino}"
    except (OSError, Unreadable):
        return platform.node()


def own_address(towards: str) -> str:
    """Returns the address from which this host would send packets to another one; nothing is sent.

    Args:
        towards: An address in the network of the run; "" if none is known.
    """
    for each in filter(None, (towards, "192.0.2.1")):  # no machine has it (RFC 5737): where packets leave
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((each, 9))
                return probe.getsockname()[0]
            except OSError:
                continue  # there is no route
    named = [own for _, name in socket.if_nameindex() if (own := address_of(name)) and not own.startswith("127.")]
    return named[0] if named else LOOPBACK


def interface_of(address: str) -> str:
    """Returns the network device that has an address; "" if none has."""
    return next((name for _, name in socket.if_nameindex() if address_of(name) == address), "")


def address_of(interface: str) -> str:
    """Returns the address of a network device; "" if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _ASK_ADDRESS, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _device() -> str:
    """Returns the name that the driver gives the first GPU, without importing a framework; "" if there is no GPU."""
    try:
        found = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        text = read_bytes(found[0]).decode(errors="replace") if found else ""
    except (OSError, Unreadable):
        return ""
    return text.partition("Model:")[2].partition("\n")[0].strip()


def own_facts() -> dict[str, str]:
    """Returns facts about this host that may affect speed or numbers."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes() >> 30} GiB",
        "device": _device(),
    }
