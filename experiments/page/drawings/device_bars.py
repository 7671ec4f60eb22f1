"""What the devices of a run hold, by class of memory, and their names."""

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samestep.common import memory
from samestep.common.costs.optimizer_state import optimizer_bytes
from samestep.common.errors import percent
from samestep.common.ledger import Footprint
from samestep.common.mesh import Dimension
from samestep.common.request import DTYPES
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params
from samestep.experiments.page.drawings.transfers import Sender, short_device
from samestep.experiments.printing.text import size

if TYPE_CHECKING:
    from samestep.common.runtime.records import RunResult  # it needs NumPy


_CUT: tuple[Dimension, ...] = ("layers", "features", "parameters", "stacked")
"""The dimensions that the axes of a mesh cut if the mesh splits parameters."""
CLASSES = (memory.PARAMETERS, memory.GRADIENTS, memory.OPTIMIZER_STATE)


def word(of: memory.MemoryClass) -> str:
    """Returns the first word of the name of a memory class, since a drawing has no room for more."""
    return of.name.partition(" ")[0]


def whole_bytes(run: Run) -> tuple[int, int, int]:
    """Returns the bytes of each class of memory on a device that holds everything.

    Args:
        run: The run.
    """
    elements = num_params(run.workload.model)
    params = elements * DTYPES[run.dtype]
    return params, params, optimizer_bytes(run, elements)


def held_from(run: Run, rows: Sequence[Footprint]) -> list[list[int]]:
    """Returns for each device where its part of the whole begins, in bytes of each class of memory.

    Parts follow each other in the order of the devices, and devices with the same part of the mesh hold the same bytes. If the
    parts add up to more than the whole, because each holds something that all hold, they overlap evenly.

    Args:
        run: The run.
        rows: What each device holds.
    """
    found: list[list[int]] = [[] for _ in rows]
    is_cut = _is_cut(run)
    for each, whole in zip(CLASSES, whole_bytes(run), strict=True):
        begins, end, last = dict[tuple[int, ...], int](), 0, 0
        for place, row in enumerate(rows):
            if (part := _part_of_mesh(run, place)) not in begins:
                begins[part], last = end, each.bytes_of(row)
                end += last
        overlap = (whole - last) / (end - last) if is_cut and end > whole > last else 1.0
        for place, (row, of_device) in enumerate(zip(rows, found, strict=True)):
            held, begin = each.bytes_of(row), round(begins[_part_of_mesh(run, place)] * overlap)
            of_device.append(min(begin % whole, whole - held) if 0 < held < whole else 0)
    return found


def _is_cut(run: Run) -> bool:
    return any(run.mesh.parts(each) > 1 for each in _CUT)


def _part_of_mesh(run: Run, place: int) -> tuple[int, ...]:
    """Returns which part of the parameters a device has. Replicas have the same part, unless only the strategy cuts them."""
    is_of_mesh = place < run.num_devices and _is_cut(run)
    return tuple(run.mesh.part(place, each) for each in _CUT) if is_of_mesh else (place,)


def share(held: int, whole: int) -> str:
    """Returns how much a device holds, and which part of the whole that is.

    Args:
        held: The bytes that it holds.
        whole: The bytes of a device that holds everything.
    """
    if not held or not whole:
        return "none"
    if held < whole:
        return f"{size(held)}, {percent(held / whole)}"
    return f"{size(held)}, all" + (f" + {size(held - whole)}" if held > whole else "")


def device_names(rows: Sequence[Sender]) -> list[str]:
    """Returns a name for each device of a run: that of its process, or its own if the process has several devices."""
    roles = [row.role for row in rows]
    return [row.role if roles.count(row.role) == 1 else short_device(row.device) for row in rows]


def drawn_from(result: "RunResult") -> str:
    """Returns a digest of the data of a drawing. The drawing's file contains it, so a drawing that is out of date shows.

    Args:
        result: The result of a run.
    """
    shown = []
    for row in result.processes:
        sends = [[*send.kind, send.source, send.bytes, send.count] for send in row.sends]
        held = [row.params_peak_bytes, *(each.bytes_of(row) for each in CLASSES)]
        shown.append([row.role, short_device(row.device), *held, sends])
    text = json.dumps([result.framework, result.strategy, result.workload, result.mesh, shown])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
