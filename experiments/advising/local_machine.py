"""The file of this machine: what calibration measured, read until the processor or torch changes.

Figures that no machine can have are not stored: a busy machine can measure anything, and the file affects all later advice.
"""

import dataclasses
import importlib.metadata
import math
import os
from collections.abc import Iterator
from pathlib import Path

import tomli_w

from samestep.common.catalog import framework_info
from samestep.common.errors import ConfigError, count
from samestep.common.files.reading import Unreadable, read_toml
from samestep.common.files.writing import open_directory, replacing
from samestep.common.runtime.measured import validate
from samestep.common.seconds.core_time import Cores
from samestep.common.seconds.machine import Machine, parse_machine
from samestep.experiments.advising.candidate_meshes import FRAMEWORK
from samestep.experiments.printing.text import short

_SOURCE = "samestep calibrate"
LEAST_STEP_SECONDS = 1e-5
"""The least overhead of any strategy, besides arithmetic and bytes: Python alone needs more for a step without layers."""
LEAST_LAYER_SECONDS = 1e-7
"""The least overhead of a layer in a micro-batch: one call into torch takes longer."""
LEAST_LATENCY_SECONDS = 1e-7
"""The least time of a message between two processes: one system call takes about as long."""
MOST_FLOPS_PER_SECOND = 1e14
"""The most floating-point operations per second of one core."""
LEAST_ELEMENT_SECONDS = 1e-12
"""The least time of an elementwise operation, at which a core would do hundreds in each cycle of its clock."""
MOST_SECONDS = 60.0
"""The longest possible time of anything that calibration measures."""


@dataclasses.dataclass(frozen=True)
class LocalMachine:
    """This machine: its cores are the devices.

    Attributes:
        machine: Its rates as those of a node.
        cores: The other measurements.
        key: What the figures are valid for: processor, cores and version of torch.
    """

    machine: Machine
    cores: Cores
    key: str


def path() -> Path:
    """Returns the path of the file."""
    from samestep.common.workload.data.dataset import cache_directory  # here: it needs NumPy

    return cache_directory() / "machines" / "here.toml"


def key() -> str:
    """Returns the key of this machine; figures with another key are not valid here."""
    from samestep.common.runtime.parent.merge import machine

    about, version = machine(), importlib.metadata.version(framework_info(FRAMEWORK).module)
    return f"{about['cpu']}, {count(len(os.sched_getaffinity(0)), 'core')}, {FRAMEWORK} {version}"


def make_here(cores: Cores, num_cores: int, memory_bytes: float, memory_bytes_per_second: float) -> LocalMachine:
    """Makes the machine from measurements.

    Args:
        cores: The measurements of a core.
        num_cores: The number of cores.
        memory_bytes: The memory of the whole machine; each core's process may have its part.
        memory_bytes_per_second: The bytes that a core moves in a second while another core does the same.
    """
    link = cores.exchange_bytes_per_second["all_reduce"]
    rates = {
        "gpus_per_node": num_cores,
        "processors": 1,
        "memory_bytes": memory_bytes / num_cores,
        "peak_flops_per_second": max(cores.matmul.values()),
        "memory_bytes_per_second": memory_bytes_per_second,
        "node_bytes_per_second": link,
        "network_bytes_per_second": link,
    }
    machine = parse_machine(
        {"title": key(), **{name: {"value": value, "source": _SOURCE} for name, value in rates.items()}}, "here"
    )
    return LocalMachine(machine, cores, key())


def make_folder() -> None:
    """Makes the folder of the file, so that a failure shows before the measurements.

    Raises:
        ConfigError: The folder cannot be made.
    """
    from samestep.common.workload.data.dataset import make_cache_directory  # here: it needs NumPy

    try:
        make_cache_directory()
        open_directory(path().parent)
    except OSError as error:
        raise ConfigError(
            f"{path().parent} cannot be made ({error.strerror}); set XDG_CACHE_HOME to a directory that can be written."
        ) from None


def store(here: LocalMachine) -> Path:
    """Writes the file and returns its path."""
    machine, cores = here.machine, dict[str, object](dataclasses.asdict(here.cores))
    cores["matmul"] = {str(size): rate for size, rate in here.cores.matmul.items()}  # a key of TOML is text
    measured = [name for name, source in machine.sources.items() if source == _SOURCE]
    rates = {name: {"value": getattr(machine, name), "source": _SOURCE} for name in measured}
    make_folder()
    path().unlink(missing_ok=True)  # even if somebody else changed it
    with replacing(path()) as file:
        file.write(tomli_w.dumps({"title": machine.title, **rates, "measured": cores}).encode())
    return path()


def load_here() -> LocalMachine | None:
    """Reads the measurements of this machine; None if it was not measured since it last changed.

    Raises:
        ConfigError: It is damaged.
    """
    if not path().exists():
        return None
    try:
        read = read_toml(path())
        if read["title"] != key():
            return None
        cores = validate(Cores, read.pop("measured"), "measured")
        here = LocalMachine(parse_machine(read, str(path())), cores, key())
    except (Unreadable, ValueError, KeyError) as error:
        why = str(error).removesuffix(".")
        raise ConfigError(f"{path()} is damaged: {why}; run samestep calibrate again.") from None
    if odd := odd_figure(cores, here.machine.memory_bytes_per_second):
        raise ConfigError(f"in {path()} {odd}; run samestep calibrate again, when nothing else runs on this machine.")
    return here


def odd_figure(cores: Cores, memory_bytes_per_second: float) -> str:
    """Returns a message about the first figure that no machine can have, with its limit; "" if all are possible.

    Args:
        cores: The measurements of the cores.
        memory_bytes_per_second: The rate of the memory; no message between two processes is faster.
    """
    for what, value, unit, least, most in _figures(cores, memory_bytes_per_second):
        if not (math.isfinite(value) and least <= value <= most):
            limit = f"at least {short(least)}" if not value >= least else f"at most {short(most)}"
            return f"{what} came out as {value:.3g} {unit}, where {limit} is possible"
    return ""


def _figures(cores: Cores, memory: float) -> Iterator[tuple[str, float, str, float, float]]:
    """Yields each figure: its name, value, unit, and least and largest possible values."""
    tiny = 1.0  # of any rate
    yield "memory", memory, "bytes/s", tiny, math.inf
    for size, rate in cores.matmul.items():
        yield f"a matrix product of {size}", rate, "FLOP/s", tiny, MOST_FLOPS_PER_SECOND
    yield "an elementwise operation", cores.element_seconds, "s", LEAST_ELEMENT_SECONDS, MOST_SECONDS
    for name, seconds in cores.latency_seconds.items():
        yield f"a small {name}", seconds, "s", LEAST_LATENCY_SECONDS, MOST_SECONDS
    for name, rate in cores.exchange_bytes_per_second.items():
        yield f"a large {name}", rate, "bytes/s", tiny, memory
    for name, (step, layer) in cores.overhead_seconds.items():
        besides = f"of {name} takes besides arithmetic and messages"
        yield f"what a step {besides}", step, "s", LEAST_STEP_SECONDS, MOST_SECONDS
        yield f"what a layer and micro-batch {besides}", layer, "s", LEAST_LAYER_SECONDS, MOST_SECONDS
