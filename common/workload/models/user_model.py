"""A user's model as a worker described it: a spec like ours."""

import dataclasses
import functools
import hashlib
import math
from pathlib import Path
from typing import ClassVar, Self

from samestep.common.files.reading import read_sha256
from samestep.common.workload.models.description import (
    INITIAL,
    SPEC,
    Description,
    counterpart_folder,
    read_description,
)
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.findings import DeclaredFindings
from samestep.common.workload.models.spec import ArraySpec, DataSizes, Param, Segment


@functools.lru_cache(maxsize=4)
def _sha256(folder: str) -> str:
    if (counterpart := counterpart_folder(folder)) is not None:
        return _sha256(counterpart)  # one model in two frameworks
    digest = hashlib.sha256()
    for name in (SPEC, INITIAL):
        digest.update(read_sha256(Path(folder, name)).encode())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class UserModelSpec:
    """A user's model. The name is that of the folder in each mirror that builds it.

    Attributes:
        path: The folder of its description.
        sha256: The SHA-256 of the description and the initial weights, by which a workload's digest distinguishes two models.
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
        """The description that a worker wrote."""
        return read_description(self.path)

    @property
    def counterpart(self) -> Self | None:
        """The model that its weights come from, if the file has one in another framework."""
        folder = counterpart_folder(self.path)
        return None if folder is None else type(self).of(folder)

    @property
    def loss(self) -> str:
        """The name of its loss; "own" if the user wrote it."""
        return self.described.loss

    def params(self) -> dict[str, Param]:
        """Returns the parameters by neutral name, in order; a tied parameter occurs once."""
        return self.described.params

    def segments(self) -> tuple[Segment, ...]:
        """Returns the `segments` of the user's file, or the children of a sequential model, or else a single segment."""
        return self.described.segments

    def inputs(self) -> ArraySpec:
        """Returns the spec of an example's inputs in the data that the model was described with."""
        return self.described.inputs

    def targets(self) -> ArraySpec:
        """Returns the spec of an example's targets in the data that the model was described with."""
        return self.described.targets

    @property
    def facts(self) -> ModelFacts:
        """The facts in its description besides its shapes."""
        return _facts(self)

    def fitted(self, sizes: DataSizes) -> Self:
        """Returns the same model, as its file fixes its sizes."""
        return self


@functools.lru_cache(maxsize=4)
def _facts(spec: UserModelSpec) -> ModelFacts:
    found, counterpart = spec.described, spec.counterpart
    return ModelFacts(
        reference_framework=(counterpart or spec).described.framework,
        counterpart=counterpart,
        folder=spec.path,
        blocks=found.blocks,
        is_built_here=False,
        takes_whole_logits=True,
        ties_stages=False,
        may_lack_gradients=True,
        featured={name: {path: _channels(found, path) for path in each} for name, each in found.featured.items()},
        **{field.name: getattr(found, field.name) for field in dataclasses.fields(DeclaredFindings)},
    )


def _channels(found: Description, layer: str) -> int:
    """Returns the number of channels of a layer, which is the size of its first buffer or parameter."""
    prefix = f"{layer.replace('.', '/')}/"
    kept = [shape for name, shape in found.buffers.items() if name.startswith(prefix) and shape]
    trained = [param.shape for name, param in found.params.items() if name.startswith(prefix)]
    return math.prod(next(iter([*kept, *trained]), (0,)))
