"""The description of a user's model, as a worker wrote it.

A description is a folder with `model.json` (the contents of the spec), `initial.npz` (the initial weights and buffers, by
neutral name), and `data.npz` if the data came from a function. It is copied into every run directory. If a model has its weights
from one in another framework, its folder also holds the description of that model, in a folder named after the framework
(`torch/`), and the correspondence of the parameters, in `matching.json`.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays, save_arrays
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.files.writing import replacing
from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.declaration import BUILDERS, split_file
from samestep.common.workload.models.findings import DeclaredFindings
from samestep.common.workload.models.layer import ParameterLayer
from samestep.common.workload.models.spec import ArraySpec, Param, Segment

SPEC, INITIAL, DATA, MATCHING = "model.json", "initial.npz", "data.npz", "matching.json"
_MOST_BYTES = 2**26
"""The largest size of `model.json`, which has a line for each parameter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description(DeclaredFindings):
    """What a worker recorded about a model that it built once, in addition to its findings.

    Attributes:
        framework: The framework in which the initial weights were drawn.
        loss: A name, "own" or "returned".
        metric: A name in `judging.metrics`, the name of the user's function, or "loss" for the user's loss.
        params: As in `ModelSpec.params`.
        segments: As in `ModelSpec.segments`; a single one if the model is not known to be a sequence.
        blocks: As in `ModelFacts.blocks`.
        inputs: As in `ModelSpec.inputs`.
        targets: As in `ModelSpec.targets`.
        featured: Feature of a model -> the layers of the framework that have it.
        layers: The layers that hold parameters, in the order of execution.
        names: Torch's layer or parameter -> TensorFlow's, if the user gives them.
        accept: The known differences between the two that the user accepts.
        seed: The seed with which the initial weights were drawn.
    """

    framework: str
    loss: str
    metric: str
    params: dict[str, Param]
    segments: tuple[Segment, ...]
    blocks: tuple[Segment, ...]
    inputs: ArraySpec
    targets: ArraySpec
    featured: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    layers: tuple[ParameterLayer, ...] = ()
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    accept: tuple[str, ...] = ()
    seed: int = 0

    @property
    def title(self) -> str:
        """The name of the workload: the user's file without folder and suffix, or a package's name for the model."""
        file, name = split_file(self.source)
        if not file:
            return self.source
        return Path(file).stem if name == "model" else f"{Path(file).stem}:{name}"


def write_description(
    folder: Path, description: Description, params: Mapping[str, Array], buffers: Mapping[str, Array]
) -> None:
    """Writes a description.

    Args:
        folder: An existing folder.
        description: The description.
        params: The initial values of the parameters, in the neutral layout.
        buffers: The initial values of the buffers.
    """
    write_initial(folder / INITIAL, params, buffers)
    with replacing(folder / SPEC) as file:
        file.write((json.dumps(dataclasses.asdict(description), indent=1) + "\n").encode())


@functools.lru_cache(maxsize=4)
def read_description(folder: str) -> Description:
    """Reads `model.json`. The result is cached, since a description does not change once it is written.

    Raises:
        ConfigError: The folder has no description, or a damaged one.
    """
    from samestep.common.workload.described import DESCRIPTIONS  # here: --help needs no pydantic

    try:
        found = read_json(Path(folder) / SPEC, _MOST_BYTES)
        if isinstance(found, dict) and "two_bytes" in found:  # its name in older files
            found["rounded"] = found.pop("two_bytes")
        if isinstance(found, dict) and "batch_norms" in found:  # likewise
            found["featured"] = {"batch_norm": found.pop("batch_norms")}
        return DESCRIPTIONS.validate_python(found)
    except (Unreadable, ValueError) as error:
        raise ConfigError(f"{folder} holds no description of a model: {error}; repeat the command.") from None


def write_initial(path: Path, params: Mapping[str, Array], buffers: Mapping[str, Array]) -> None:
    """Writes weights, under the names `params/NAME` and `buffers/NAME`.

    Args:
        path: The file.
        params: The parameters by neutral name.
        buffers: The buffers by neutral name.
    """
    arrays = {f"params/{name}": value for name, value in params.items()}
    arrays |= {f"buffers/{name}": value for name, value in buffers.items()}
    with replacing(path) as file:
        save_arrays(file, arrays)


def counterpart_folder(folder: str) -> str | None:
    """Returns the description of the model from which a description has its weights, in a folder named after its framework."""
    return next((str(path) for name in BUILDERS if (path := Path(folder, name)).exists()), None)


def read_initials(folder: str) -> tuple[Arrays, Arrays]:
    """Reads all initial parameters and buffers of a description, as float64."""
    found = read_description(folder)
    return read_initial(folder, "params", found.params), read_initial(folder, "buffers", found.buffers)


def read_initial(folder: str, kind: str, names: Iterable[str]) -> Arrays:
    """Reads initial values of a description, as float64.

    Args:
        folder: The folder of the description.
        kind: "params" or "buffers".
        names: The names of the parameters or buffers.
    """
    names = list(names)
    arrays = read_arrays(Path(folder) / INITIAL, [f"{kind}/{name}" for name in names])
    return {name: arrays[f"{kind}/{name}"] for name in names}
