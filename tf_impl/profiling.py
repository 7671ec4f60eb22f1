"""The activities of a process, read from TensorFlow's profiler.

References:
    tsl/profiler/protobuf/xplane.proto of TensorFlow 2.21: a line a thread, times in picoseconds since the profiler started.
    An operation of the graph is an event "NAME:TYPE". That of a collective lasts until its result is there.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from samestep.common.files.reading import read_bytes
from samestep.common.files.writing import replacing
from samestep.common.runtime.step_parts import AccountedSteps, StepParts
from samestep.common.timeline import Activity
from samestep.tf_impl.observing.activations import BACKWARD, FORWARD
from samestep.tf_impl.observing.collectives import COLLECTIVES
from samestep.tf_impl.observing.exchanges import short_name
from samestep.tf_impl.upstream import Event, function_names, nodes, profiled_events

_MOST_BYTES = 2**31
"""The most bytes of a profile of some steps."""
_MOVES = {"_Send", "_Recv", "_HostSend", "_HostRecv"}
"""Operations that TensorFlow puts in where it cuts a graph by device."""


def record(take: Callable[[], None], devices: Sequence[str], keep: Path | None) -> list[Activity]:
    """Takes steps under the profiler; see `Record`."""
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder, tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)):
            take()
        (found,) = Path(folder).rglob("*.xplane.pb")
        content = read_bytes(found, _MOST_BYTES)
    if keep is not None:
        with replacing(keep.with_name(f"{keep.name}.xplane.pb")) as file:
            file.write(content)
    places = {short_name(device): place for place, device in enumerate(devices)}
    return list(_activities(profiled_events(content), _device_of_operation(), places))


def step_parts(take: Callable[[], AccountedSteps]) -> StepParts:
    """Takes steps and finds their parts; see `SplitSteps`.

    The names of the threads that run operators begin with tf_ (TensorFlow 2.21). Its profiler would also show the
    update, but it has crashed a process (munmap_chunk), so it is not used in every run.
    """
    return take().parts_by_threads("tf_")


def _device_of_operation() -> dict[str, str]:
    """Returns the device of each operation of every function of this process that has one."""
    return {node.name: node.device for name in sorted(function_names()) for node in nodes(name) if node.device}


def _activities(events: Iterable[Event], devices: Mapping[str, str], places: Mapping[str, int]) -> Iterator[Activity]:
    """Yields operations as computation and collectives as communication, the latter in the order of the graph."""
    collectives = []
    for event in events:
        name, colon, kind = event.name.rpartition(":")
        if not colon or ":" in name or not kind.isidentifier() or kind in _MOVES:
            continue
        place = places.get(short_name(devices.get(name, "")), 0)
        if kind in COLLECTIVES:
            sent = Activity(place, "communicate", COLLECTIVES[kind], event.start_ns, event.end_ns)
            collectives.append((event.instance, sent))
        else:
            yield Activity(place, "compute", _phase(name), event.start_ns, event.end_ns)
    yield from (sent for _, sent in sorted(collectives, key=lambda pair: pair[0]))


def _phase(operation: str) -> str:
    """Returns the phase of an operation, from the name scopes that `step.accumulate` opens."""
    scopes = {scope.partition("_")[0] if scope != "gradient_tape" else scope for scope in operation.split("/")}
    if scopes & {"gradient_tape", BACKWARD}:
        return "backward"
    return "forward" if FORWARD in scopes else ""
