"""A model of the user's own, as a worker described it: from there on it is a spec like ours.

A description is a folder: `model.json` (what a spec has to say), `initial.npz` (the initial weights and buffers, by neutral
name), and `data.npz` if the data came from a function. It is copied into every run directory. That of a TensorFlow model
which has a torch model beside it holds that one's description in `torch/`, and in `matching.json` which parameter is which.
"""

import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays
from samestep.common.files.reading import Unreadable, read_json, read_sha256
from samestep.common.files.writing import replacing
from samestep.common.workload.models.findings import OwnOptimizer, TwoBytes, Use
from samestep.common.workload.models.habits import Habits
from samestep.common.workload.models.layer import Layer
from samestep.common.workload.models.spec import ArraySpec, DataSizes, Param, Segment

if TYPE_CHECKING:
    import numpy as np  # only where arrays are made: a prediction does without

SPEC, INITIAL, DATA, MATCHING = "model.json", "initial.npz", "data.npz", "matching.json"
TWIN = "torch"
"""The folder with the description of the torch model, in that of a TensorFlow model which has its weights from there."""
_MOST_BYTES = 2**26
"""Of `model.json`: a line for each parameter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """What a worker found out about a model by building it once.

    Attributes:
        source: The user's file and the name in it, as FILE.py:NAME, absolute; or what a package calls it.
        framework: Where the initial weights were drawn.
        frameworks: For which it has a builder.
        loss: A name, or "own".
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
        seed: Under which the initial weights were drawn.
        optimizer: That of the file, in `framework`; None if it has none.
        two_bytes: Its forward pass under mixed precision.
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
    buffers: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    dtypes: dict[str, str] = dataclasses.field(default_factory=dict)
    whole_buffers: tuple[str, ...] = ()
    batch_norms: tuple[str, ...] = ()
    habits: Habits = dataclasses.field(default_factory=Habits)
    sums: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    seed: int = 0
    optimizer: OwnOptimizer | None = None
    two_bytes: TwoBytes = dataclasses.field(default_factory=TwoBytes)
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
        return pydantic.TypeAdapter(Description).validate_python(read_json(Path(folder) / SPEC, _MOST_BYTES))
    except (Unreadable, ValueError) as error:
        raise ConfigError(f"{folder} holds no description of a model: {error}; repeat the command.") from None


def running_of(model: object) -> tuple[str, ...]:
    """The buffers of a user's model that training moves, beside those of batch normalisations; ours have none."""
    return model.described.habits.running if isinstance(model, OwnSpec) else ()


@functools.lru_cache(maxsize=4)
def _sha256(folder: str) -> str:
    if (twin := Path(folder, TWIN)).exists():
        return _sha256(str(twin))  # one model in two frameworks
    digest = hashlib.sha256()
    for name in (SPEC, INITIAL):
        digest.update(read_sha256(Path(folder, name)).encode())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class OwnSpec:
    """A user's model. Its name is that of the folder in the mirrors that builds it.

    Attributes:
        path: The folder of its description.
        sha256: Of the description and the initial weights, so that a workload's digest tells two models apart.
    """

    name: ClassVar[str] = "own"

    path: str
    sha256: str

    @classmethod
    def of(cls, path: str) -> Self:
        """Makes the spec of a described model.

        Args:
            path: The folder of the description.
        """
        read_description(path)
        return cls(path, _sha256(path))

    @property
    def described(self) -> Description:
        """What a worker found out."""
        return read_description(self.path)

    @property
    def twin(self) -> Self | None:
        """The torch model that its weights come from, if it is a TensorFlow model with one."""
        folder = Path(self.path, TWIN)
        return type(self).of(str(folder)) if folder.exists() else None

    @property
    def loss(self) -> str:
        """A name, or "own"."""
        return self.described.loss

    def params(self) -> dict[str, Param]:
        """Its parameters by neutral name, in order; a tied one once."""
        return self.described.params

    def segments(self) -> tuple[Segment, ...]:
        """What the file gives as `segments`, or the children of a sequential model; else one segment."""
        return self.described.segments

    def blocks(self) -> tuple[Segment, ...]:
        """What FSDP gathers together; what is in none of them is gathered for the whole step."""
        return self.described.blocks

    def inputs(self) -> ArraySpec:
        """As in the data that it was described with."""
        return self.described.inputs

    def targets(self) -> ArraySpec:
        """As in the data that it was described with."""
        return self.described.targets

    def fitted(self, sizes: DataSizes) -> Self:
        """The same model: its file fixes its sizes."""
        return self

    def initial(self, kind: str = "params") -> "dict[str, np.ndarray]":
        """The initial values, float64.

        Args:
            kind: "params" or "buffers".
        """
        names = self.params() if kind == "params" else self.described.buffers
        arrays = read_arrays(Path(self.path) / INITIAL, [f"{kind}/{name}" for name in names])
        return {name: arrays[f"{kind}/{name}"] for name in names}
