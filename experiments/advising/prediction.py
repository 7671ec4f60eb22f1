"""One prediction: what a strategy would hold and send on a mesh, from arithmetic alone, and whether that fits a device."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator

from samestep.common.axes.used import check_split
from samestep.common.catalog import strategy_info
from samestep.common.costs.textbook import formulas
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import flag
from samestep.common.ledger import Footprint, Ledger
from samestep.common.memory import ACTIVATIONS, GATHERED, STATE
from samestep.common.mesh import Mesh
from samestep.common.request import KEPT_WEIGHTS, MAX_PREDICTED_DEVICES, RunConfig
from samestep.common.run import parse_prediction
from samestep.common.strategy import Formula, Run
from samestep.experiments.printing.text import size

BACKENDS = {
    "gloo": ("gloo", "nccl"),
    "grpc": ("grpc", "nccl"),
    "tensorpipe": ("tensorpipe",),
    "memory": ("memory",),
}
"""The backend of a strategy's exchanges between CPUs -> the backends that it may use."""
_UNITS = {"B": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for ending, base in (("iB", 1024), ("B", 1000))
}


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What a prediction assumes about the machine, including settings that no run supports yet."""

    devices: int | None = flag(
        None,
        "number of devices, along the strategy's first mesh axis (default: 1)",
        least=1,
        most=MAX_PREDICTED_DEVICES,
    )
    backend: str | None = flag(
        None,
        "the backend of the exchanges (default: the one between CPUs); devices of one process exchange in memory",
        choices=tuple(dict.fromkeys(name for names in BACKENDS.values() for name in names)),
    )
    device_memory: str | None = flag(None, "say what fits on a device with this much memory, as in 80GiB")
    weights: str | None = flag(
        None,
        "keep parameters, activations and gradients in two bytes, and master weights and optimizer state in float32, as "
        "Megatron-LM and DeepSpeed do",
        choices=KEPT_WEIGHTS,
    )


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a step of one row costs.

    Attributes:
        cell: The cell as it was requested.
        run: What is predicted.
        backend: What carries its exchanges.
        ledger: The ledger of the cost model.
        formulas: The formulas of the textbooks.
    """

    cell: str
    run: Run
    backend: str
    ledger: Ledger
    formulas: tuple[Formula, ...]

    @property
    def fullest(self) -> Footprint:
        """The footprint of the devices that need most."""
        return max(self.ledger.footprints, key=needed_bytes)

    @property
    def needed_bytes(self) -> int:
        """The bytes that these devices need."""
        return needed_bytes(self.fullest)

    @property
    def knows_activations(self) -> bool:
        """Whether the activations of every device are predicted."""
        return all(footprint.activations_bytes is not None for footprint in self.ledger.footprints)

    def fits(self, memory: int) -> str:
        """Returns whether all devices have room: "yes", "no", or "without activations" if these are too large or unknown."""
        held = max(needed_bytes(each) - (each.activations_bytes or 0) for each in self.ledger.footprints)
        if held > memory:
            return "no"
        return "yes" if self.knows_activations and self.needed_bytes <= memory else "without activations"

    @property
    def num_devices(self) -> int:
        """The number of devices that hold or compute anything: those of the mesh, and servers."""
        return sum(footprint.count for footprint in self.ledger.footprints)

    @property
    def sent_bytes_per_device(self) -> float:
        """The bytes that each device sends in a step, on average."""
        return self.ledger.sent_bytes_per_step / self.num_devices

    def textbook(self, quantity: str) -> float | None:
        """Returns what the textbooks say about a quantity; None if nothing."""
        return next((formula.value for formula in self.formulas if formula.quantity == quantity), None)


def needed_bytes(footprint: Footprint) -> int:
    """Returns the most that a device needs for tensors: all classes at their peaks at once, which is an upper bound."""
    return sum(each.bytes_of(footprint) for each in (STATE, GATHERED, ACTIVATIONS))


@contextlib.contextmanager
def describing(config: RunConfig) -> Iterator[Callable[[RunConfig], RunConfig]]:
    """Yields a function that adds the description of the user's model to a request; the description exists inside the `with`."""
    if config.model is None:
        yield lambda asked: asked
        return
    from samestep.common.runtime.parent.launcher import Launcher  # here: it needs NumPy

    with Launcher() as launcher:
        yield launcher.describe


def predict_row(cell: str, config: RunConfig, assumed: Assumptions, is_named: bool = True) -> Prediction:
    """Predicts one strategy.

    Args:
        cell: The cell as it was requested.
        config: The request, including the cell.
        assumed: What is assumed of the machine.
        is_named: Whether the user named the strategy; the backend must then be one of its own.

    Raises:
        ConfigError: The request is wrong, or the row cannot take it.
    """
    info = strategy_info(config.framework, config.strategy)
    backend = assumed.backend or info.backend
    if backend not in BACKENDS[info.backend]:
        if is_named:
            name = f"{config.framework}:{info.name}"
            raise unknown(f"backend of {name}", backend, BACKENDS[info.backend])
        backend = info.backend
    if assumed.devices is not None:
        if config.mesh is not None:
            raise ConfigError(
                f"--devices {assumed.devices} and --mesh {config.mesh} both say how many; give one of them."
            )
        config = dataclasses.replace(config, mesh=f"{(*info.axes, 'data')[0]}={assumed.devices}")
    return _predict(cell, parse_prediction(config, assumed.weights), backend)


def _predict(cell: str, run: Run, backend: str) -> Prediction:
    return Prediction(cell, run, backend, run.strategy.cost(run, backend), formulas(run, backend))


def where_it_fits(prediction: Prediction, memory: int) -> Prediction | None:
    """Returns the prediction on the fewest devices that suffice, found by doubling one axis of its mesh; None if there is none.

    The batch stays the same, or grows until it divides among the devices.

    Args:
        prediction: The prediction of a row that does not fit.
        memory: The bytes of a device.
    """
    fitting = []
    for axis in prediction.run.strategy.axes:
        before = prediction.needed_bytes
        for run in _grown(prediction.run, axis):
            found = _predict(prediction.cell, run, prediction.backend)
            if found.fits(memory) == "yes":
                fitting.append(found)
            if fitting[-1:] == [found] or found.needed_bytes > 0.999 * before:
                break  # it fits, or this axis does not help
            before = found.needed_bytes
    return min(fitting, key=lambda each: each.run.num_devices) if fitting else None


def _grown(run: Run, axis: str) -> Iterator[Run]:
    """Yields the run on more and more devices along one axis, as long as the strategy can take it."""
    sizes = dict(run.mesh.axes)
    while True:
        sizes[axis] = 2 * sizes.get(axis, 1)
        mesh = Mesh(tuple(sizes.items()))
        parts = mesh.replicas * run.passes
        parts *= dataclasses.asdict(run.options).get("microbatches", 1)
        run = dataclasses.replace(run, mesh=mesh, batch_size=-(-run.batch_size // parts) * parts)
        if mesh.size > MAX_PREDICTED_DEVICES:
            return
        try:
            check_split(run)
        except ConfigError:
            return
        yield run


def parse_memory(text: str) -> int:
    """Reads the memory of a device.

    Args:
        text: As in 80GiB, 80GB (a GB is 1000^3 bytes) or 1.5TiB.

    Raises:
        ConfigError: It is not a size.
    """
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]{0,3})", text)
    if not match or match[2] not in _UNITS or not (count := round(float(match[1]) * _UNITS[match[2]])):
        raise ConfigError(f"--device-memory is '{text}'; give a size, as in 80GiB, 80GB or 512MiB.")
    return count


def told_to_fit(prediction: Prediction, memory: int) -> str:
    """Returns a few sentences on whether a row fits, by how much it misses, and where it would fit.

    Args:
        prediction: The prediction of the row.
        memory: The bytes of a device.
    """
    cell, needed = prediction.cell, prediction.needed_bytes
    fits = prediction.fits(memory)
    if fits == "yes":
        return f"{cell} fits in {size(memory)}: a device needs at most {size(needed)}, which leaves {size(memory - needed)}."
    if not prediction.knows_activations:
        does, rest = ("may fit", "besides") if fits != "no" else ("does not fit", "without")
        needs = f"a device needs {size(needed)} {rest} activations, which are not predicted for this strategy"
        return f"{cell} {does} in {size(memory)}: {needs}."
    more = size(needed - memory)
    told = f"{cell} does not fit in {size(memory)}: a device needs up to {size(needed)}, which is {more} too much."
    if fits == "without activations":
        kept = size(prediction.fullest.activations_bytes)
        told += f" It would fit without its activations ({kept}); a smaller batch or more micro-batches keep fewer."
    if not prediction.run.strategy.axes:
        return f"{told} It runs on one device only."
    if (found := where_it_fits(prediction, memory)) is None:
        return f"{told} More devices along one axis (up to {MAX_PREDICTED_DEVICES:,}) do not make it fit."
    grown = f", global batch {found.run.batch_size}" if found.run.batch_size != prediction.run.batch_size else ""
    return f"{told} It would fit on {found.run.num_devices:,} devices ({found.run.mesh}{grown}), with {size(found.needed_bytes)}."
