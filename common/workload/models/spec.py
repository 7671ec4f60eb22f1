"""A model independent of frameworks: a table of parameters and a list of segments, without arithmetic or arrays."""

import dataclasses
import functools
import math
from typing import ClassVar, Literal, Protocol, Self

from samestep.common.workload.models.facts import ModelFacts

Role = Literal["kernel", "bias", "table", "scale"]
ACTIVATIONS, POOLINGS, NORMS = ("gelu", "relu"), ("average", "max"), ("none", "batch")


@dataclasses.dataclass(frozen=True)
class Param:
    """One parameter of a model.

    Attributes:
        shape: Its shape in the neutral layout: linear kernels [in, out], filters [height, width, in, out], tables [rows,
            width].
        role: What its layer does with it: "kernel" (multiplies the inputs), "bias" (is added), "table" (rows are looked
            up) or "scale" (multiplies a normalized input).
        std: The standard deviation of its initial values, which are drawn from a normal distribution; 0 draws nothing.
        constant: A constant that is added to the drawn values.
        split: The axis along which it may be split (the neutral split table); None to keep it whole.
        lookups: How many of its rows one example looks up by id; 0 if every example reads all of it.
        groups: The number of groups of indices along `split` that stay together (attention heads); 0 if each index stands alone.
        shares_input: Whether its layer has the same inputs as an earlier layer, so one gradient serves both.
        tied: For a table, whether a later layer multiplies by all of it, like a kernel.
        stacked: The number of layers whose parameters it stacks along its first dim, and of which an example uses some; 0 for
            none.
        frozen: Whether it is not trained, which means that it has no gradient and no optimizer state.
        reads: How often a forward pass reads it: once by its layer, and once by each regularizer that adds it to the loss.
        unreached: Whether no gradient reaches it in any step, because the loss does not depend on it; its state is kept.
        skipped: Whether it gets no gradient in any step and every update skips it, so it has no optimizer state.
    """

    shape: tuple[int, ...]
    role: Role
    std: float = 0.0
    constant: float = 0.0
    split: int | None = None
    lookups: int = 0
    groups: int = 0
    shares_input: bool = False
    tied: bool = False
    stacked: int = 0
    frozen: bool = False
    reads: int = 1
    unreached: bool = False
    skipped: bool = False

    @property
    def has_gradient(self) -> bool:
        """Whether steps compute a gradient for it, as far as that is the same in every step."""
        return not (self.frozen or self.unreached)

    @property
    def read_by_rows(self) -> bool:
        """Whether a step reads only the rows that are looked up."""
        return self.lookups > 0 and not self.tied

    @property
    def is_factor(self) -> bool:
        """Whether a product uses all of it: a kernel, or a table that is also the kernel of a later layer."""
        return self.role == "kernel" or self.tied

    @property
    def is_matrix(self) -> bool:
        """Whether it is a two-dimensional kernel; a table is not, since its rows are looked up one by one."""
        return self.role == "kernel" and len(self.shape) == 2

    @functools.cached_property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def met(self, taken: int) -> int:
        """Returns how many elements a token uses if it takes a given number of the stacked layers."""
        return self.size * taken // self.stacked if self.stacked else self.size


@dataclasses.dataclass(frozen=True)
class Segment:
    """The smallest piece into which a model can be split along its depth; all segments in order are the model.

    Attributes:
        name: The path of the segment, which is the prefix of its parameters' names.
        flops: The multiplications and additions in its forward pass, per example.
        outputs: The shape of its outputs for the next segment, per example, in the neutral layout.
        parameters: The names of its parameters; None if these are the ones below its path.
        several: The shapes of its output tensors, if there are several; `outputs` then has their total size.
    """

    name: str
    flops: int
    outputs: tuple[int, ...] = ()
    parameters: tuple[str, ...] | None = None
    several: tuple[tuple[int, ...], ...] = ()


MOST_IDS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """The array of one example: its shape, and the number of distinct ids in each column (None for real numbers).

    Attributes:
        shape: The shape without the dimension of examples.
        ids: The number of distinct ids, which start at 0; one number for all, or one for each element of the last dimension.
        several: The named arrays, if an example has several; `shape` and `ids` then have no meaning.
    """

    shape: tuple[int, ...]
    ids: int | tuple[int, ...] | None = None
    several: tuple[tuple[str, "ArraySpec"], ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the array holds whole numbers of unknown range, as the targets of a user's loss may."""
        return isinstance(self.ids, int) and self.ids >= MOST_IDS


@dataclasses.dataclass(frozen=True)
class DataSizes:
    """What a model needs to know about its data.

    Attributes:
        input_shape: The shape of one example's inputs.
        outputs: The number of distinct targets; for real targets, the number of values of one example.
        cardinalities: For tables of ids, the number of distinct ids of each column.
        hash_buckets: For tables of ids, the number of ids of a last, crossed column; 0 if there is none.
        loss: The loss that fits the targets: "mean_squared_error" if they are real numbers, else "cross_entropy".
    """

    input_shape: tuple[int, ...]
    outputs: int
    cardinalities: tuple[int, ...] = ()
    hash_buckets: int = 0
    loss: str = "cross_entropy"


class ModelSpec(Protocol):
    """A model as plain numbers. Every method takes only milliseconds, whatever the model's size.

    Attributes:
        name: The name of its file in all three mirrors.
    """

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]  # every spec is a dataclass

    @property
    def loss(self) -> str:
        """Its loss, which is always the mean over all targets of the GLOBAL batch.

        "cross_entropy" (logits [..., classes], integer targets [...]), "binary_cross_entropy" (logits [batch], targets
        [batch] of 0 and 1) or "mean_squared_error" (outputs and real targets, both [batch, outputs]: the mean of their
        squared differences over examples and outputs).
        """

    def params(self) -> dict[str, Param]:
        """Returns its parameters by neutral name, in order."""

    def segments(self) -> tuple[Segment, ...]:
        """Returns its smallest pieces, in order."""

    def inputs(self) -> ArraySpec:
        """Returns the spec of one example's inputs."""

    def targets(self) -> ArraySpec:
        """Returns the spec of one example's targets."""

    @property
    def facts(self) -> ModelFacts:
        """Everything else that is known about it."""

    def fitted(self, sizes: DataSizes) -> Self:
        """Returns the same model with the input and output sizes of a data set.

        Raises:
            ConfigError: The model cannot take such data.
        """


IGNORED = -1
"""The target of a position that does not count."""


def ignores_targets(model: ModelSpec) -> bool:
    """Returns whether some targets do not count, so each batch has a different number of them."""
    return model.facts.ignores


def num_positions(model: ModelSpec) -> int:
    """Returns how often a layer is applied to one example: once per token, or once if there are no tokens."""
    return math.prod(model.segments()[-1].outputs[:-1])


def num_params(model: ModelSpec) -> int:
    """Returns the number of elements of all parameters."""
    return sum(param.size for param in model.params().values())


def num_active(model: ModelSpec) -> int:
    """Returns the number of elements that a token uses: those of the experts that it takes, and all others."""
    return sum(param.met(model.facts.sizes.top_k) for param in model.params().values())


def layer(name: str) -> str:
    """Returns the path of the layer that a parameter belongs to."""
    return name.rpartition("/")[0]


def parameters_of(model: ModelSpec, *segments: Segment) -> dict[str, Param]:
    """Returns the parameters of some segments, by name."""
    found: dict[str, Param] = {}
    for segment in segments:
        names = segment.parameters
        found |= _by_segment(model)[segment.name] if names is None else {name: model.params()[name] for name in names}
    return found


def shared_parameters(model: ModelSpec) -> dict[str, list[Segment]]:
    """Returns the parameters that several segments use, with those segments in order."""
    users: dict[str, list[Segment]] = {}
    for segment in model.segments():
        for name in parameters_of(model, segment):
            users.setdefault(name, []).append(segment)
    return {name: segments for name, segments in users.items() if len(segments) > 1}


@functools.lru_cache(maxsize=8)
def _by_segment(model: ModelSpec) -> dict[str, dict[str, Param]]:
    """Returns the parameters below each segment's path. It is cached: a pipeline of a thousand layers asks a thousand times."""
    found: dict[str, dict[str, Param]] = {segment.name: {} for segment in model.segments()}
    for name, param in model.params().items():
        path = layer(name)
        while path not in found:
            assert path, f"{name} belongs to no segment"
            path = layer(path)
        found[path][name] = param
    return found
