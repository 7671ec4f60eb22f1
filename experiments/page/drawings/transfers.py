"""The transfers of an observed step, each collective and each message once, joined from the records of all processes."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Protocol

from samestep.common.ledger import PHASES, Send
from samestep.common.mesh import Mesh

MOST_JOINED = 4000
"""The most records of a step that are taken apart; in a step with more, equal consecutive sends stay one record."""
_MOST_NAMED = 4
"""The most devices that are named one by one."""
Route = tuple[tuple[int, ...], tuple[int, ...]]
"""The places in the result of the sending and of the receiving devices; the devices of a collective are in both."""


class Sender(Protocol):
    """A device with the records of its process: as measured (`DeviceRow`), or as predicted."""

    @property
    def role(self) -> str: ...  # noqa: D102
    @property
    def rank(self) -> int: ...  # noqa: D102
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def sends(self) -> tuple[Send, ...]: ...  # noqa: D102


@dataclasses.dataclass(frozen=True)
class DrawnTransfer:
    """One kind of send, as a drawing shows it.

    Attributes:
        phase: One of `PHASES`.
        operation: The operation, such as "all_reduce".
        group: The mesh axis along which devices exchange.
        paths: The senders and receivers; several routes if the same happens in several groups.
        bytes: The bytes of all `count` sends together. Those that several groups send at once count once.
        count: The number of sends.
        ranks: The devices of a group, as recorded; 0 if that is not known.
    """

    phase: str
    operation: str
    group: str
    paths: tuple[Route, ...]
    bytes: float
    count: int = 1
    ranks: int = 0

    @property
    def devices(self) -> set[int]:
        """All devices that take part."""
        return {index for path in self.paths for side in path for index in side}

    def between(self, names: Sequence[str]) -> str:
        """Returns which devices send to which, in words.

        Args:
            names: The names of the devices.
        """
        return "; ".join(dict.fromkeys(self._in_words(path, names) for path in self.paths))

    def _in_words(self, path: Route, names: Sequence[str]) -> str:
        either = "" if path[0] == path[1] or self.operation == "broadcast" else "any of "
        senders, receivers = (
            (either if len(side) > 1 else "")
            + (
                ", ".join(names[index] for index in side)
                if len(side) <= _MOST_NAMED
                else f"{names[side[0]]} to {names[side[-1]]}"
            )
            for side in path
        )
        if path[0] != path[1]:
            return f"{senders} → {receivers}"
        return senders if self.ranks in (0, len(path[0])) else f"{senders}, in groups of {self.ranks}"


def transfers(mesh: Mesh, rows: Sequence[Sender], most: int) -> list[DrawnTransfer]:
    """Lists the transfers of a step in order, joining neighbors so there are at most a given number if possible.

    Args:
        mesh: The mesh of the run.
        rows: Its devices.
        most: The most transfers that a drawing has room for.
    """
    found = _runs(_side_by_side(_runs(_join(mesh, rows), _alike)), _alike)
    for kind in (_same_paths, _same_kind):
        if len(found) > most:
            found = _runs(found, kind)
    if len(found) > most:  # without their order
        found = _runs(sorted(found, key=lambda each: (PHASES.index(each.phase), *_same_kind(each))), _same_kind)
    return found


def _alike(each: DrawnTransfer) -> Hashable:
    return each.phase, each.operation, each.group, each.paths, each.bytes / each.count


def _same_paths(each: DrawnTransfer) -> Hashable:
    return each.phase, each.operation, each.group, each.paths


def _same_kind(each: DrawnTransfer) -> tuple[str, str, str]:
    return each.phase, each.operation, each.group


def _runs(found: Iterable[DrawnTransfer], kind: Callable[[DrawnTransfer], Hashable]) -> list[DrawnTransfer]:
    """Joins consecutive transfers of the same kind."""
    return [_together(list(run)) for _, run in itertools.groupby(found, kind)]


def _together(run: Sequence[DrawnTransfer]) -> DrawnTransfer:
    paths = tuple(dict.fromkeys(path for each in run for path in each.paths))
    size, count = sum(each.bytes for each in run), sum(each.count for each in run)
    return dataclasses.replace(run[0], paths=paths, bytes=size, count=count)


def _side_by_side(ordered: Iterable[DrawnTransfer]) -> list[DrawnTransfer]:
    """Joins equal transfers of groups without a common device, unless a transfer that both wait for is between them."""
    found: list[DrawnTransfer] = []
    for each in ordered:
        for place in reversed(range(len(found))):
            other = found[place]
            if other.devices & each.devices:
                found.append(each)
                break
            if dataclasses.replace(other, paths=each.paths) == each:
                found[place] = dataclasses.replace(other, paths=(*other.paths, *each.paths))
                break
        else:
            found.append(each)
    return found


def _join(mesh: Mesh, rows: Sequence[Sender]) -> list[DrawnTransfer]:
    """Returns one transfer for every collective, recorded by any of its devices, and for every message, in order."""
    expand = sum(send.count for row in rows for send in row.sends) <= MOST_JOINED
    found: dict[Hashable, tuple[tuple[float, ...], DrawnTransfer]] = {}
    for index, row in enumerate(rows):
        seen: collections.Counter[Hashable] = collections.Counter()
        for place, send in enumerate(_expanded(row.sends) if expand else row.sends):
            order = (send.at or 0.0, float(PHASES.index(send.phase)), float(place))
            for path in _paths(send, index, rows, mesh):
                each = DrawnTransfer(
                    send.phase, send.operation, send.group, (path,), send.bytes, send.count, send.ranks
                )
                seen[key := (_same_paths(each))] += 1
                owner = index if send.to else -1  # of a message; all devices record a collective
                earlier, _ = found.get((key, seen[key], owner), (order, each))
                found[key, seen[key], owner] = max(earlier, order), each
    return [each for _, each in sorted(found.values(), key=lambda pair: pair[0])]


def _expanded(sends: Iterable[Send]) -> Iterator[Send]:
    for send in sends:
        if send.bytes % send.count:  # they differ: a prediction adds up all copies of a kind
            yield send
            continue
        one = dataclasses.replace(send, bytes=send.bytes // send.count, count=1)
        yield from (dataclasses.replace(one, source=source) for source in send.sources)


def _paths(send: Send, index: int, rows: Sequence[Sender], mesh: Mesh) -> list[Route]:
    """Returns the senders and receivers of a record; a process with several devices records for the groups of all of them."""
    if send.to:
        source = find_devices(send.source, rows) or (index,)
        path = source, tuple(each for each in find_devices(send.to, rows) if each not in source)
        return [path[::-1] if send.operation == "pull" and not send.source else path]
    own = [place for place, row in enumerate(rows) if row.role == rows[index].role] or [index]
    groups = dict.fromkeys(mesh.members(send.group, send.ranks, place) for place in own if place < mesh.size)
    if send.source:  # a broadcast has a root
        root = tuple(place for each in dict.fromkeys(send.sources) for place in find_devices(each, rows))
        return [(root, tuple(each for each in group if each not in root)) for group in groups]
    return [(group, group) for group in groups]


def find_devices(name: str, rows: Sequence[Sender]) -> tuple[int, ...]:
    """Returns the places of the devices that a record names: by rank, by device, or by the role of several.

    Args:
        name: A name as in `Send.to`.
        rows: The rows of the result.
    """
    if not name:
        return ()
    by_rank = tuple(place for place, row in enumerate(rows) if str(row.rank) == name)
    by_device = tuple(place for place, row in enumerate(rows) if short_device(row.device) == name)
    by_role = tuple(place for place, row in enumerate(rows) if row.role.rpartition("-")[0] == name)
    return by_rank or by_device or by_role


def short_device(device: str) -> str:
    """Returns the last part of a device's full name: "CPU:0"."""
    return device.rpartition("/")[2].removeprefix("device:")
