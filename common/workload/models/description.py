"""The description of a user's model, as a worker wrote it.

A description is a folder: `model.json` (what a spec has to say), `initial.npz` (the initial weights and buffers, by neutral
name), and `data.npz` if the data came from a function. It is copied into every run directory. That of a model
which has its weights from one in another framework holds that one's description in a folder named after it (`torch/`), and
in `matching.json` which parameter is which.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.files.writing import replacing
from samestep.common.workload.declaration import BUILDERS
from samestep.common.workload.models.findings import DescribedOptimizer, TwoBytes, Use
from samestep.common.workload.models.habits import Habits
from samestep.common.workload.models.layer import ParameterLayer
from samestep.common.workload.models.returned import Returns
from samestep.common.workload.models.spec import ArraySpec, Param, Segment

if TYPE_CHECKING:
    import numpy as np  # only where arrays are made: a prediction does without

SPEC, INITIAL, DATA, MATCHING = "model.json", "initial.npz", "data.npz", "matching.json"
_MOST_BYTES = 2**26
"""Of `model.json`: a line for each parameter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """What a worker found out about a model by building it once.

    Attributes:
        source: The user's file and the name in it, as FILE.py:NAME, absolute; or what a package calls it.
        framework: Where the initial weights were drawn.
        frameworks: For which it has a builder.
        loss: A name, "own" or "returned".
        reduction: As in `ModelFacts`.
        ignores: As in `ModelFacts`.
        returns: As in `ModelFacts`.
        unread: As in `ModelFacts`.
        metric: A name in `judging.metrics`, that of the user's function, or "loss" for the user's loss.
        params: As in `ModelSpec.params`.
        segments: As in `ModelSpec.segments`; a single one if the model is not known as a sequence.
        blocks: As in `ModelSpec.blocks`.
        inputs: As in `ModelSpec.inputs`.
        targets: As in `ModelSpec.targets`.
        buffers: Shapes by neutral name.
        dtypes: The parameters and buffers of real numbers that are not in the default dtype, by the framework's own name.
        whole_buffers: The buffers that hold whole numbers.
        batch_norms: The layers that normalise over the batch.
        habits: On what a forward pass in training depends beside an example and the weights.
        sums: The layers that add to the loss what is no mean over examples.
        layers: Those that hold parameters, in the order of execution.
        names: Torch's layer or parameter -> TensorFlow's, where the user says so.
        accept: The known differences between the two that the user accepts.
        seed: Under which the initial weights were drawn.
        optimizer: That of the file, in `framework`; None if it has none.
        rounded: Its forward pass under mixed precision.
        unused: The parameters that got no gradient when it was tried.
        branches: Whether that may be others in another step, since the forward pass looks at its numbers.
        uses: How a step uses its blocks and the layers that a tensor plan cuts, by path.
    """

    source: str
    framework: str
    frameworks: tuple[str, ...]
    loss: str
    metric: str
    params: dict[str, Param]
    segments: tuple[Segment, ...]
    blocks: tuple[Segment, ...]
    inputs: ArraySpec
    targets: ArraySpec
    reduction: str = "targets"
    ignores: bool = False
    returns: Returns = "outputs"
    unread: tuple[int, ...] = ()
    buffers: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    dtypes: dict[str, str] = dataclasses.field(default_factory=dict)
    whole_buffers: tuple[str, ...] = ()
    batch_norms: tuple[str, ...] = ()
    habits: Habits = dataclasses.field(default_factory=Habits)
    sums: tuple[str, ...] = ()
    layers: tuple[ParameterLayer, ...] = ()
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    accept: tuple[str, ...] = ()
    seed: int = 0
    optimizer: DescribedOptimizer | None = None
    rounded: TwoBytes = dataclasses.field(default_factory=TwoBytes)
    unused: tuple[str, ...] = ()
    branches: bool = False
    uses: dict[str, Use] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """The user's file without its folder and ending, or what a package calls it: the name of the workload."""
        file, colon, name = self.source.rpartition(":")
        if not colon:
            return self.source
        return Path(file).stem if name == "model" else f"{Path(file).stem}:{name}"


def write_description(folder: Path, description: Description, initial: "dict[str, np.ndarray]") -> None:
    """Writes a description.

    Args:
        folder: Where to; it is there.
        description: What was found out.
        initial: `params/NAME` and `buffers/NAME`, in the neutral layout.
    """
    import numpy as np

    with replacing(folder / INITIAL) as file:
        np.savez(file, **initial)  # type: ignore[arg-type]
    with replacing(folder / SPEC) as file:
        file.write((json.dumps(dataclasses.asdict(description), indent=1) + "\n").encode())


@functools.lru_cache(maxsize=4)
def read_description(folder: str) -> Description:
    """Reads `model.json`; a description does not change once it is written.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    import pydantic  # here: --help needs none of it

    try:
        found = read_json(Path(folder) / SPEC, _MOST_BYTES)
        if isinstance(found, dict) and "two_bytes" in found:  # as older files call it
            found["rounded"] = found.pop("two_bytes")
        return pydantic.TypeAdapter(Description).validate_python(found)
    except (Unreadable, ValueError) as error:
        raise ConfigError(f"{folder} holds no description of a model: {error}; repeat the command.") from None


def counterpart_folder(folder: str) -> str | None:
    """Finds the description of the model that a description has its weights from: a folder named after its framework."""
    return next((str(path) for name in BUILDERS if (path := Path(folder, name)).exists()), None)


def read_initial(folder: str, kind: str, names: Iterable[str]) -> "dict[str, np.ndarray]":
    """Reads the initial values of a description, float64.

    Args:
        folder: The folder of the description.
        kind: "params" or "buffers".
        names: Which of them.
    """
    names = list(names)
    arrays = read_arrays(Path(folder) / INITIAL, [f"{kind}/{name}" for name in names])
    return {name: arrays[f"{kind}/{name}"] for name in names}
