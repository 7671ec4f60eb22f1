"""A machine as rates: what a GPU computes and moves a second, and what the links between GPUs carry.

A machine is a file in `evidence/machines/`, or any file of the same form: a title, and for each rate a table with its
`value` and its `source`.
"""

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

from samestep.common.errors import ConfigError, unknown

_FOLDER = Path(__file__).parents[1] / "machines"


def _rate(least: float, most: float, unit: str) -> float:
    return dataclasses.field(metadata={"least": least, "most": most, "unit": unit})


@dataclasses.dataclass(frozen=True)
class Machine:
    """GPUs in nodes. Each rate is per GPU and direction unless its comment says otherwise.

    Attributes:
        title: What it is, in words.
        gpus_per_node: The GPUs that the fast links connect.
        memory_bytes: The memory of a GPU.
        peak_flops_per_second: Of dense matrix products in the precision of training.
        memory_bytes_per_second: Between a GPU and its memory.
        node_bytes_per_second: From a GPU to others of its node.
        network_bytes_per_second: From a node to others, over all its adapters.
        sources: Where each value is from, by field.
    """

    title: str
    gpus_per_node: int = _rate(1, 1024, "GPUs")
    memory_bytes: float = _rate(1e8, 1e13, "bytes")
    peak_flops_per_second: float = _rate(1e9, 1e17, "FLOP/s")
    memory_bytes_per_second: float = _rate(1e8, 1e14, "bytes/s")
    node_bytes_per_second: float = _rate(1e6, 1e13, "bytes/s")
    network_bytes_per_second: float = _rate(1e6, 1e13, "bytes/s")
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


_RATES = {field.name: field for field in dataclasses.fields(Machine) if "unit" in field.metadata}


def machines() -> dict[str, Path]:
    """The machine files that come with samestep, by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def load_machine(name: str) -> Machine:
    """Reads a machine.

    Args:
        name: That of a file in `evidence/machines/`, or a path that ends in `.toml`.

    Raises:
        ConfigError: There is none, or a rate is missing, unknown or absurd.
    """
    path = Path(name) if name.endswith(".toml") else machines().get(name)
    if path is None:
        raise unknown("machine", name, machines())
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no machine file: {error}") from None
    return parse_machine(read, str(path))


def parse_machine(tables: Mapping[str, object], where: str) -> Machine:
    """Checks what a machine file says.

    Args:
        tables: A title, and for each rate a table of its value and its source.
        where: The file, for messages.

    Raises:
        ConfigError: A rate is missing, unknown or absurd.
    """
    values, sources = {}, {}
    for name in tables.keys() - _RATES.keys() - {"title"}:
        raise unknown(f"rate in {where}", name, _RATES)
    for name, field in _RATES.items():
        about, table = field.metadata, tables.get(name)
        if not isinstance(table, Mapping) or "value" not in table or not table.get("source"):
            raise ConfigError(
                f"{where} has no {name}; add a table [{name}] with its value in {about['unit']} and its source."
            )
        value = table["value"]
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not about["least"] <= value <= about["most"]:
            limits = f"{about['least']:g} to {about['most']:g} {about['unit']}"
            raise ConfigError(f"{name} in {where} is {value!r}; give {limits}.")
        values[name], sources[name] = (int if field.type is int else float)(value), str(table["source"])
    return Machine(title=str(tables.get("title", where)), **values, sources=sources)
