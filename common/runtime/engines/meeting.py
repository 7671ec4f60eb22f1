"""Where the processes of a run meet that no launcher of ours started: in files of the run directory, which all hosts share.

Each process writes `meeting-ROLE.json`: a random number of its own, and an address. Process 0 collects them in `meeting.json`. A
process believes a list only once every process has confirmed the very same one, so files that an earlier attempt left are
never taken: nobody confirms for them.
"""

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.errors import WorkerFailed
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.runtime.directory import write_json

POLL_SECONDS = 0.02
MEETING = "meeting.json"
CLOCK_SECONDS = 1.0
"""How far a host's clock may be off that of the file system before it is a fact worth telling."""


@dataclasses.dataclass(frozen=True)
class Arrival:
    """What a process tells the others when it comes.

    Attributes:
        nonce: A random number, another one each time that a process is started.
        host: What tells its host from others.
        address: The host's address, and a free port there.
        facts: What its host is: name, cores, memory and versions.
        confirmed: The list that it has confirmed, by its number.
    """

    nonce: str
    host: str
    address: tuple[str, int]
    facts: dict[str, str]
    confirmed: str = ""


def meet(directory: Path, roles: Sequence[str], index: int, own: Arrival, seconds: float) -> list[Arrival]:
    """Waits for all processes of a run.

    Args:
        directory: The run directory.
        roles: The roles of all processes, in the topology's order.
        index: The place of this one.
        own: What this one tells the others.
        seconds: How long to wait.

    Returns:
        What each process told.

    Raises:
        WorkerFailed: They did not all come in time, or do not share the directory.
    """
    deadline = time.monotonic() + seconds
    own = _arrive(directory, roles[index], own)
    version, collected = "", []
    while time.monotonic() < deadline:
        if index == 0:
            present = [own, *(_read(_file(directory, role)) for role in roles[1:])]
            come = [dataclasses.replace(each, confirmed="") for each in present if each]
            if all(present) and come != collected:
                version, collected = os.urandom(8).hex(), come
                _announce(directory, version, collected)
            if collected and all(each and each.confirmed == version for each in present[1:]):
                _announce(directory, version, collected, complete=True)
                return collected
        else:
            version, complete, arrivals = _collected(directory)
            if len(arrivals) == len(roles) and arrivals[index].nonce == own.nonce:
                if complete and own.confirmed == version:
                    return arrivals
                if own.confirmed != version:
                    own = dataclasses.replace(own, confirmed=version)
                    _write(directory, roles[index], own)
        time.sleep(POLL_SECONDS)
    raise WorkerFailed(_missing(directory, roles, index, seconds))


def _arrive(directory: Path, role: str, own: Arrival) -> Arrival:
    """Writes what a process tells; returns that, with how far its clock is off that of the file server."""
    _write(directory, role, own)
    if abs(off := time.time() - _file(directory, role).stat().st_mtime) > CLOCK_SECONDS:
        own = dataclasses.replace(own, facts={**own.facts, "clock": f"{off:+.0f} s off"})
        _write(directory, role, own)
    return own


def _announce(directory: Path, version: str, arrivals: Sequence[Arrival], complete: bool = False) -> None:
    write_json(directory / MEETING, {"version": version, "complete": complete, "arrivals": arrivals})


def read_hosts(directory: Path, roles: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Returns what each host of a run is, and which of its processes it had; nothing of a run that a launcher of ours started.

    Args:
        directory: The run directory.
        roles: The roles of all processes.
    """
    _, is_complete, arrivals = _collected(directory)
    if not is_complete or len(arrivals) != len(roles):
        return ()
    of_hosts: dict[str, list[int]] = {}
    for number, each in enumerate(arrivals):
        of_hosts.setdefault(each.host, []).append(number)
    return tuple(
        {**arrivals[numbers[0]].facts, "processes": " ".join(roles[number] for number in numbers)}
        for numbers in of_hosts.values()
    )


def address_for_others(directory: Path, roles: Sequence[str], role: str) -> str:
    """Returns where other hosts reach a process; "" if all are on one host, or a launcher of ours started them.

    Args:
        directory: The run directory.
        roles: Of all processes.
        role: That of the process.
    """
    _, is_complete, arrivals = _collected(directory)
    if not is_complete or len({each.host for each in arrivals}) < 2 or len(arrivals) != len(roles):
        return ""
    return arrivals[list(roles).index(role)].address[0]


def find_differences(hosts: Sequence[Mapping[str, str]]) -> str:
    """Says in what the hosts of a run differ that may make one slower than another, or its numbers others; "" if in nothing.

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


def forget_meeting(directory: Path, roles: Sequence[str]) -> None:
    """Removes what the processes told each other.

    Args:
        directory: The run directory.
        roles: The roles of all processes.
    """
    for path in (directory / MEETING, *(_file(directory, role) for role in roles)):
        path.unlink(missing_ok=True)


def _missing(directory: Path, roles: Sequence[str], index: int, seconds: float) -> str:
    absent = [role for role in roles if _read(_file(directory, role)) is None]
    who = f"{', '.join(absent[:5])}{' and others' if absent[5:] else ''} wrote nothing to" if absent else "not all saw"
    return (
        f"{roles[index]}: within {seconds:g} s, {who} {directory.absolute()}; either not every process was started, or their "
        "hosts do not share this directory: prepare the run on a file system that all of them have"
    )


def _file(directory: Path, role: str) -> Path:
    return directory / f"meeting-{role}.json"


def _write(directory: Path, role: str, arrival: Arrival) -> None:
    write_json(_file(directory, role), arrival)


def _read(path: Path) -> Arrival | None:
    try:
        return _arrival(read_json(path))
    except (Unreadable, TypeError, ValueError, KeyError):
        return None  # not there yet


def _arrival(values: object) -> Arrival:
    if not isinstance(values, dict):
        raise TypeError
    (host, port), facts = values["address"], values["facts"]
    texts = {str(name): str(value) for name, value in facts.items()}
    return Arrival(str(values["nonce"]), str(values["host"]), (str(host), int(port)), texts, str(values["confirmed"]))


def _collected(directory: Path) -> tuple[str, bool, list[Arrival]]:
    try:
        values = read_json(directory / MEETING)
        assert isinstance(values, dict)
        return str(values["version"]), values["complete"] is True, [_arrival(each) for each in values["arrivals"]]
    except (Unreadable, TypeError, ValueError, KeyError, AssertionError):
        return "", False, []  # not there yet
