"""How processes that our launcher did not start meet: by files in the run directory, which all hosts share.

Each process writes `rendezvous-ROLE.json`, with a random number and an address. Process 0 collects them in `rendezvous.json`.
A process trusts a list only once every process has confirmed that very list. Nobody confirms files of an earlier attempt, so
they are never used.
"""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.measured import validate

POLL_SECONDS = 0.02
RENDEZVOUS = "rendezvous.json"
CLOCK_SECONDS = 1.0
"""How far a host's clock may be off the file system's clock before it is reported."""


@dataclasses.dataclass(frozen=True)
class Arrival:
    """The arrival of a process, which it writes down for the others.

    Attributes:
        nonce: A random number, different each time that a process is started.
        host: The identifier of its host.
        address: The host's address, and a free port there.
        facts: Its host's name, cores, memory and versions.
        confirmed: The version of the list that it has confirmed; "" if none.
    """

    nonce: str
    host: str
    address: tuple[str, int]
    facts: dict[str, str]
    confirmed: str = ""


@dataclasses.dataclass(frozen=True)
class Collected:
    """The list that process 0 announces.

    Attributes:
        version: A random number that identifies it.
        complete: Whether every process has confirmed it.
        arrivals: The arrival of each process.
    """

    version: str = ""
    complete: bool = False
    arrivals: tuple[Arrival, ...] = ()


def meet(directory: Path, roles: Sequence[str], index: int, own: Arrival, seconds: float) -> Sequence[Arrival]:
    """Waits for all processes of a run.

    Args:
        directory: The run directory.
        roles: The roles of all processes, in the topology's order.
        index: The place of this process.
        own: The arrival of this process.
        seconds: How long to wait.

    Returns:
        The arrival of each process.

    Raises:
        WorkerFailed: Not all of them came in time, or they do not share the directory.
    """
    deadline = time.monotonic() + seconds
    own = _arrive(directory, roles[index], own)
    collected = Collected()
    while time.monotonic() < deadline:
        if index == 0:
            present = [own, *(_read(_file(directory, role)) for role in roles[1:])]
            come = tuple(dataclasses.replace(each, confirmed="") for each in present if each)
            if all(present) and come != collected.arrivals:
                collected = Collected(os.urandom(8).hex(), arrivals=come)
                write_json(directory / RENDEZVOUS, collected)
            if come == collected.arrivals and all(each and each.confirmed == collected.version for each in present[1:]):
                write_json(directory / RENDEZVOUS, dataclasses.replace(collected, complete=True))
                return come
        else:
            collected = _collected(directory)
            if len(collected.arrivals) == len(roles) and collected.arrivals[index].nonce == own.nonce:
                if collected.complete and own.confirmed == collected.version:
                    return collected.arrivals
                if own.confirmed != collected.version:
                    own = dataclasses.replace(own, confirmed=collected.version)
                    _write(directory, roles[index], own)
        time.sleep(POLL_SECONDS)
    raise WorkerFailed(_missing(directory, roles, index, seconds))


def _arrive(directory: Path, role: str, own: Arrival) -> Arrival:
    """Writes the arrival of a process and returns it; reports a clock that is far off the file system's."""
    _write(directory, role, own)
    if abs(off := time.time() - _file(directory, role).stat().st_mtime) > CLOCK_SECONDS:
        own = dataclasses.replace(own, facts={**own.facts, "clock": f"{off:+.0f} s off"})
        _write(directory, role, own)
    return own


def read_hosts(directory: Path, roles: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Returns the facts about each host of a run, with its processes; empty for a run that our launcher started.

    Args:
        directory: The run directory.
        roles: The roles of all processes.
    """
    collected = _collected(directory)
    arrivals = collected.arrivals
    if not collected.complete or len(arrivals) != len(roles):
        return ()
    of_hosts: dict[str, list[int]] = {}
    for number, each in enumerate(arrivals):
        of_hosts.setdefault(each.host, []).append(number)
    return tuple(
        {**arrivals[numbers[0]].facts, "processes": " ".join(roles[number] for number in numbers)}
        for numbers in of_hosts.values()
    )


def address_for_others(directory: Path, roles: Sequence[str], role: str) -> str:
    """Returns the address at which other hosts reach a process; "" if all are on one host, or our launcher started them.

    Args:
        directory: The run directory.
        roles: The roles of all processes.
        role: The role of the process.
    """
    collected = _collected(directory)
    arrivals = collected.arrivals
    if not collected.complete or len({each.host for each in arrivals}) < 2 or len(arrivals) != len(roles):
        return ""
    return arrivals[list(roles).index(role)].address[0]


def find_differences(hosts: Sequence[Mapping[str, str]]) -> str:
    """Describes how the hosts of a run differ in what may affect speed or numbers; "" if they do not.

    Args:
        hosts: As `read_hosts` returns them.
    """
    names = dict.fromkeys(name for host in hosts for name in host if name not in ("host", "processes"))
    found = []
    for name in names:
        values: dict[str, list[str]] = {}
        for host in hosts:
            values.setdefault(host.get(name, "none"), []).append(host["host"])
        if len(values) > 1:
            found.append(f"{name} " + ", ".join(f"{value} on {' and '.join(on)}" for value, on in values.items()))
    return "; ".join(found)


def forget_rendezvous(directory: Path, roles: Sequence[str]) -> None:
    """Removes the files by which the processes met.

    Args:
        directory: The run directory.
        roles: The roles of all processes.
    """
    for path in (directory / RENDEZVOUS, *(_file(directory, role) for role in roles)):
        path.unlink(missing_ok=True)


def _missing(directory: Path, roles: Sequence[str], index: int, seconds: float) -> str:
    absent = [role for role in roles if _read(_file(directory, role)) is None]
    who = f"{', '.join(absent[:5])}{' and others' if absent[5:] else ''} wrote nothing to" if absent else "not all saw"
    return (
        f"{roles[index]}: within {seconds:g} s, {who} {directory.absolute()}; either not every process was started, or their "
        "hosts do not share this directory: prepare the run on a file system that all of them have"
    )


def _file(directory: Path, role: str) -> Path:
    return directory / f"rendezvous-{role}.json"


def _write(directory: Path, role: str, arrival: Arrival) -> None:
    write_json(_file(directory, role), arrival)


def _read(path: Path) -> Arrival | None:
    try:
        return validate(Arrival, read_json(path), "it")
    except (Unreadable, ConfigError):
        return None  # not there yet


def _collected(directory: Path) -> Collected:
    try:
        return validate(Collected, read_json(directory / RENDEZVOUS), "it")
    except (Unreadable, ConfigError):
        return Collected()  # not there yet
