"""A machine as rates: what a GPU computes and moves per second, and what the links between GPUs carry.

A machine is a file in `common/seconds/machines/`, or any file of the same form: a title, and for each rate a table with its
`value` and its `source`. Rates from a data sheet are required. Rates that only measurements have (the shares of the peaks that
are reached, and the seconds of everything but arithmetic) are those of `REFERENCE` if a file leaves them out.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from samestep.common.errors import ConfigError, unknown
from samestep.common.files.reading import Unreadable, read_toml

REFERENCE = "a100-80gb"
"""The machine that was measured in most detail."""
_FOLDER = Path(__file__).parent / "machines"
Number = TypeVar("Number", int, float)


@dataclasses.dataclass(frozen=True)
class Rate:
    """The limits of a rate in a file.

    Attributes:
        least: The smallest value that is accepted.
        most: The largest value that is accepted.
        unit: Its unit.
        is_measured: Whether it comes from measurements alone, and not from a data sheet.
        may_lack: Whether a file may leave it out without a default.
    """

    least: float
    most: float
    unit: str
    is_measured: bool = False
    may_lack: bool = False


def _rate(least: Number, most: Number, unit: str) -> Number:
    return dataclasses.field(metadata={"rate": Rate(least, most, unit)})


def _share(unit: str = "of the peak") -> float:
    return dataclasses.field(metadata={"rate": Rate(0.01, 1.0, unit, is_measured=True)})


def _seconds() -> float:
    return dataclasses.field(metadata={"rate": Rate(0.0, 1.0, "seconds", is_measured=True)})


@dataclasses.dataclass(frozen=True)
class Machine:
    """GPUs in nodes. A rate is that of one GPU, in one direction.

    Attributes:
        title: Its name in sentences.
        gpus_per_node: The GPUs that the fast links connect.
        processors: The streaming multiprocessors of a GPU, each of which computes one tile of a matrix at a time.
        memory_bytes: The memory of a GPU.
        peak_flops_per_second: The peak rate of dense matrix products in the precision of training.
        memory_bytes_per_second: The rate between a GPU and its memory.
        node_bytes_per_second: The rate from a GPU to others of its node.
        network_bytes_per_second: The rate from a node to others, over all its adapters.
        matrix_share: The share of the peak that matrix products reach while every processor has a tile.
        unaligned_share: The share of its speed that the head reaches if the vocabulary is not a multiple of 8, which tensor cores
            and loads of 16 bytes need.
        memory_share: The share of the memory's rate that kernels reach which read and write whole tensors once.
        attention_share: The same for the kernels on attention scores: masks, softmax, dropout.
        fused_attention_share: The share of the peak of matrix products that fused attention reaches.
        node_share: The share of the links in a node that collectives reach.
        network_share: The share of the network that collectives and sends reach.
        block_host_seconds: The host's time to launch the kernels of a block, forward and backward.
        all_reduce_host_seconds: The host's time for one all-reduce along `tensor`.
        unfused_softmax_seconds: The host's additional time for a block if Megatron's fused softmax refuses the sizes.
        wait_seconds: How late a GPU is on average at an all-reduce along `tensor`.
        device_watts: The most power that a GPU draws; None if not known.
        sources: Field -> the source of its value.
    """

    title: str
    gpus_per_node: int = _rate(1, 1024, "GPUs")
    memory_bytes: float = _rate(1e8, 1e13, "bytes")
    processors: int = _rate(1, 10000, "processors")
    peak_flops_per_second: float = _rate(1e9, 1e17, "FLOP/s")
    memory_bytes_per_second: float = _rate(1e8, 1e14, "bytes/s")
    node_bytes_per_second: float = _rate(1e6, 1e13, "bytes/s")
    network_bytes_per_second: float = _rate(1e6, 1e13, "bytes/s")
    matrix_share: float = _share()
    unaligned_share: float = _share("of its speed")
    memory_share: float = _share()
    attention_share: float = _share()
    fused_attention_share: float = _share()
    node_share: float = _share()
    network_share: float = _share()
    block_host_seconds: float = _seconds()
    all_reduce_host_seconds: float = _seconds()
    unfused_softmax_seconds: float = _seconds()
    wait_seconds: float = _seconds()
    device_watts: float | None = dataclasses.field(
        default=None, metadata={"rate": Rate(1.0, 1e5, "watts", may_lack=True)}
    )
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


RATES: Mapping[str, Rate] = {
    field.name: field.metadata["rate"] for field in dataclasses.fields(Machine) if "rate" in field.metadata
}
"""The rates of a machine by name, in order."""
_WHOLE = ("gpus_per_node", "processors")


def machines() -> dict[str, Path]:
    """Returns the machine files that come with samestep, by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


@functools.lru_cache
def load_machine(name: str) -> Machine:
    """Reads a machine.

    Args:
        name: The name of a file in `common/seconds/machines/`, or a path that ends in `.toml`.

    Raises:
        ConfigError: The file does not exist, or a rate is missing, unknown or absurd.
    """
    path = Path(name) if name.endswith(".toml") else machines().get(name)
    if path is None:
        hint = "A file of your own ends in .toml." if "." in name or "/" in name else ""
        raise unknown("machine", name, machines(), hint)
    try:
        read = read_toml(path)
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}; give a file, or one of {', '.join(machines())}.") from None
    return parse_machine(read, str(path))


def parse_machine(tables: Mapping[str, object], where: str) -> Machine:
    """Checks and reads the contents of a machine file.

    Args:
        tables: A title, and for each rate a table of its value and its source.
        where: The file, for messages.

    Raises:
        ConfigError: A rate is missing, unknown or absurd.
    """
    if strangers := sorted(tables.keys() - RATES.keys() - {"title"}):
        raise unknown(f"rate in {where}", strangers[0], RATES)
    left_out = [name for name, about in RATES.items() if about.is_measured and name not in tables]
    reference = load_machine(REFERENCE) if left_out else None
    values, sources = {}, {}
    for name, about in RATES.items():
        if about.may_lack and name not in tables:
            continue
        if reference and name in left_out:
            values[name], sources[name] = getattr(reference, name), f"not measured; that of {REFERENCE}"
        else:
            values[name], sources[name] = _read(name, about, tables.get(name), where)
    return Machine(title=str(tables.get("title", where)), **values, sources=sources)


def _read(name: str, about: Rate, table: object, where: str) -> tuple[float, str]:
    """Reads the table of a rate: its value and its source."""
    if not isinstance(table, Mapping) or "value" not in table or not table.get("source"):
        raise ConfigError(f"{where} has no {name}; add a table [{name}] with its value ({about.unit}) and its source.")
    value, is_whole = table["value"], name in _WHOLE
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if not is_number or not about.least <= value <= about.most:
        limits = f"{'a whole number ' if is_whole else ''}from {about.least:g} to {about.most:g} {about.unit}"
        raise ConfigError(f"{name} in {where} is {value!r}; give {limits}.")
    return value, str(table["source"])
