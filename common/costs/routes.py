"""Predicts how much each process sends to each other one in a step, from the links that collectives use.

An all-reduce, an all-gather and a reduce-scatter go around a ring in gloo and in TensorFlow's collectives: each device
sends to the next one of its group. An all-to-all goes from each device to every other one, and gloo's broadcast down a
binomial tree.

References:
    gloo's allreduce.cc, allgather.cc and broadcast.cc; TensorFlow's ring_alg.cc.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.costs.sizes import KEY_BYTES, MESSAGES, sent_bytes
from samestep.common.ledger import Ledger, Send
from samestep.common.strategy import Run

RINGS = ("all_reduce", "all_gather", "reduce_scatter")
"""The operations that go around a ring."""


def routes(run: Run, ledger: Ledger, backend: str) -> Mapping[tuple[int, int], float]:
    """Predicts the bytes that each process sends to each other one in a step.

    Args:
        run: What is trained.
        ledger: The prediction for the run.
        backend: The backend that carries its exchanges.

    Returns:
        (process, process) -> bytes; empty if more is sent than what devices exchange.
    """
    devices, processes = run.num_devices, len(run.strategy.topology(run))
    if devices % processes or any(send.operation not in MESSAGES for send in ledger.sends):
        return {}
    found: collections.Counter[tuple[int, int]] = collections.Counter()
    for place, sends in enumerate(sends_by_place(run, ledger, backend)):
        for source, to, size in links(run, backend, place, sends):
            one, other = source * processes // devices, to * processes // devices
            if one != other:
                found[one, other] += size  # pyrefly: ignore
    rest = ledger.sent_bytes_per_step - sum(found.values())
    asked = devices * sum(send.count for send in ledger.sends) * KEY_BYTES
    if backend == "grpc" and math.isclose(rest, asked, rel_tol=1e-6):  # every process asks the first one for keys
        for process in range(1, processes):
            found[process, 0] += asked / (2 * (processes - 1))  # pyrefly: ignore
            found[0, process] += asked / (2 * (processes - 1))  # pyrefly: ignore
        return found
    return found if abs(rest) <= 1e-6 * ledger.sent_bytes_per_step else {}


def sends_by_place(run: Run, ledger: Ledger, backend: str) -> Iterator[Sequence[Send]]:
    """Yields the sends of each device of the mesh, in the order of the devices, with the receivers of its messages.

    Args:
        run: What is trained.
        ledger: The prediction for the run.
        backend: The backend that carries its exchanges.
    """
    if "pipe" in run.strategy.axes:
        stages = run.mesh.parts("layers")
        apart = run.num_devices // stages
        for place in range(stages):
            sends = run.strategy.cost(run, backend, place).sends
            yield from ([_from(send, place * apart + n, n, run) for send in sends] for n in range(apart))
        return
    yield from ([_from(send, place, place, run) for send in ledger.sends] for place in range(run.num_devices))


def _from(send: Send, place: int, further: int, run: Run) -> Send:
    """Returns the send as another device of the stage does it, with its own receiver, or with the roots of its own group.

    Args:
        send: The send of the first device of the stage, or of all; the roots of a broadcast are those of the first
            group.
        place: The device.
        further: How many places the device comes after the first one of its stage.
        run: What is trained.
    """
    if send.operation == "send" and send.group == "pipe":
        return dataclasses.replace(send, to=str((int(send.to) + further) % run.num_devices))
    if send.operation not in ("send", "broadcast"):
        return send
    group, first = (run.mesh.members(send.group, send.ranks, each) for each in (place, 0))
    if send.operation == "broadcast":
        roots = [str(group[first.index(int(each))]) for each in send.sources if each and group != first]
        return dataclasses.replace(send, source=",".join(roots) or send.source)
    return dataclasses.replace(send, to=str(group[(group.index(place) + 1) % len(group)]))


def links(run: Run, backend: str, place: int, sends: Sequence[Send]) -> Iterator[tuple[int, int, float]]:
    """Yields the source, the destination and the bytes of everything that a device sends; broadcasts are listed for their roots.

    Args:
        run: What is trained.
        backend: The backend that carries its exchanges.
        place: The device.
        sends: The sends of the device.
    """
    for send in sends:
        size = sent_bytes(send, backend, run.item_bytes) / run.techniques.steps_of_period
        group = run.mesh.members(send.group, send.ranks, place)
        own = group.index(place)
        if send.operation in RINGS:
            yield place, group[(own + 1) % len(group)], size
        elif send.operation == "all_to_all":
            yield from ((place, each, size / (len(group) - 1)) for each in group if each != place)
        elif send.operation == "send":
            yield place, int(send.to), size
        elif send.operation == "broadcast" and str(place) in (roots := send.sources):
            size *= roots.count(str(place)) / len(roots)
            for target in range(1, len(group)):
                root = 1 << target.bit_length() - 1
                sender, receiver = (group[(own + place) % len(group)] for place in (target - root, target))
                yield sender, receiver, size * len(group) / (len(group) - 1)
