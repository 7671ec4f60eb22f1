"""Every strategy of both frameworks, predicted for each number of devices and each width that the page offers."""

import dataclasses
from collections.abc import Iterator, Sequence

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.mesh import AXES, Mesh
from samestep.common.request import RunConfig
from samestep.common.strategy import StrategyInfo
from samestep.common.workload.optimizers.table import DEFAULT
from samestep.common.workload.table import resize, resolve, size_names
from samestep.experiments.advising.prediction import Assumptions, Prediction, predict_row
from samestep.experiments.comparing.comparison_request import every_cell
from samestep.experiments.exploring.steps import played, predicted_devices

WIDTH, DEVICES = "width", (1, 2, 4, 8)
FACTORS = (0.5, 1, 2, 4)
"""The widths, as multiples of the workload's own."""
BASE = RunConfig(
    workload="synthetic-gpt+layers=6+heads=8+width=128+context=16",
    batch_size=16,
    steps=4,
    optimizer=DEFAULT,
    parity=False,
)
"""The default workload: a model that can be cut in eight along any axis but `expert`."""
EXPERTS = 8
"""The number of experts of each block of that model, for strategies that cut experts."""
_ADDED = f"experts={EXPERTS}"


@dataclasses.dataclass(frozen=True)
class Grid:
    """The settings that the page offers.

    Attributes:
        base: The request, apart from strategy, devices and width.
        devices: The numbers of devices.
        widths: The widths of the model; empty if it has no such size.
        rows: The strategies that can be chosen.
    """

    base: RunConfig
    devices: tuple[int, ...]
    widths: tuple[int, ...]
    rows: tuple[Cell, ...]


def grid_of(base: RunConfig, cells: Sequence[Cell], devices: Sequence[int] = ()) -> Grid:
    """Returns the devices, widths and strategies among which a reader of the page can choose.

    Args:
        base: The request, apart from strategy and devices.
        cells: The requested cells; those with settings are added to the catalogue.
        devices: Numbers of devices that have to be included.
    """
    rows = every_cell(None)
    own = [cell for cell in cells if cell not in rows]
    meshes = [devices_of(base, cell) for cell in own if cell.get("mesh")]
    has_width = base.model is None and WIDTH in size_names(base.workload, base.data)
    widths = [round(width_of(base) * factor) for factor in FACTORS] if has_width else []
    numbers = tuple(sorted({*DEVICES, *devices, *meshes}))
    return Grid(base, numbers, tuple(widths), (*rows, *dict.fromkeys(own)))


def width_of(base: RunConfig) -> int:
    """Returns the width of a model that has one."""
    return getattr(resolve(base.workload, base.data).model, WIDTH)


def request_of(base: RunConfig, cell: Cell) -> RunConfig:
    """Returns the request of a strategy, whose model gets experts if the strategy cuts them.

    Args:
        base: The request, apart from the strategy.
        cell: The row.

    Raises:
        ConfigError: The row has no such setting.
    """
    name, _, number = _ADDED.partition("=")
    cuts_experts = any("stacked" in AXES[axis].cuts for axis in cell.info.axes[:1])
    if cuts_experts and base.model is None and name in size_names(base.workload, base.data):
        has_some = any(param.stacked for param in resolve(base.workload, base.data).model.params().values())
        base = base if has_some else dataclasses.replace(base, workload=resize(base.workload, {name: number}))
    return cell.apply_to(base)


def devices_of(base: RunConfig, cell: Cell) -> int:
    """Returns the number of devices that a cell fixes.

    Args:
        base: What is trained.
        cell: The row.

    Raises:
        ConfigError: The row cannot take it.
    """
    return predict_row(str(cell), request_of(base, cell), Assumptions()).run.num_devices


def request(grid: Grid, cell: Cell, devices: int, width: int | None) -> RunConfig:
    """Returns the request of a point of the grid.

    Args:
        grid: The grid.
        cell: The row.
        devices: The number of devices, which a cell of one device, or with a mesh, ignores.
        width: The width, if the model has one.

    Raises:
        ConfigError: The row has no such setting.
    """
    workload = grid.base.workload if width is None else resize(grid.base.workload, {WIDTH: str(width)})
    config = request_of(dataclasses.replace(grid.base, workload=workload), cell)
    return config if config.mesh or not cell.info.axes else dataclasses.replace(config, mesh=_mesh(cell.info, devices))


def _mesh(info: StrategyInfo, devices: int) -> str:
    """Returns the mesh of a number of devices that shows best what a row is for.

    It uses the first axis that the row shares with its counterpart, so both do the same. A row that can cut a model both
    between its layers and inside them does so first, and splits the batch over the remaining devices.
    """
    shared = Cell.parse(info.counterpart).info.axes if info.counterpart else ()
    cuts = {name: AXES[name].cuts[:1] for name in info.axes}
    several = [name for cut in ("layers", "features", "examples") for name in info.axes if cuts[name] == (cut,)]
    halvings = devices.bit_length() - 1
    if {("layers",), ("features",)} <= {*cuts.values()} and 0 < halvings <= len(several) and devices == 1 << halvings:
        return str(Mesh(tuple((name, 2) for name in several[:halvings])))
    axis = next((name for name in info.axes if name in shared), info.axes[0])
    return str(Mesh(((axis, devices),)))


def predict(grid: Grid, cell: Cell, devices: int, width: int | None) -> Prediction:
    """Predicts a point of the grid; the arguments are those of `request`.

    Raises:
        ConfigError: The row cannot take it.
    """
    found = predict_row(str(cell), request(grid, cell, devices, width), Assumptions(), is_named=False)
    if cell.info.axes and (own := found.run.num_devices) != devices:
        raise ConfigError(f"{cell} has a mesh of {own} devices, not of {devices}.")
    return found


def predicted(grid: Grid, cell: Cell) -> Iterator[tuple[str, dict[str, object] | str]]:
    """Yields the key of each point of the grid, with the step of a strategy or the reason why it cannot take the request.

    Args:
        grid: The grid.
        cell: The row.
    """
    for devices in grid.devices:
        for width in grid.widths or (None,):
            try:
                found = predict(grid, cell, devices, width)
            except ConfigError as error:
                yield key_of(devices, width), str(error)
            else:
                step = played(found.run, predicted_devices(found), found.ledger.sent_bytes_per_step)
                yield key_of(devices, width), step


def key_of(devices: int, width: int | None) -> str:
    """Returns the key of a point of the grid.

    Args:
        devices: The number of devices.
        width: The width, if the model has one.
    """
    return f"{devices}" if width is None else f"{devices}/{width}"
