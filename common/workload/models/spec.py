"""What a model is before any framework: a table of parameters and a list of segments. No arithmetic, no arrays."""

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
        shape: In the neutral layout: linear kernels [in, out], filters [height, width, in, out], tables [rows, width].
        role: What its layer does with it: "kernel" (multiplies the inputs), "bias" (is added), "table" (rows are looked
            up) or "scale" (multiplies a normalised input).
        std: Standard deviation of its initial values, drawn from a normal distribution; 0 draws nothing.
        constant: What is added to the drawn values.
        split: The axis along which it may be cut (the neutral split table); None: keep it whole.
        lookups: How many of its rows one example looks up by id; 0: every example reads all of it.
        groups: Along `split`, how many groups of indices stay together (attention heads); 0: each index stands alone.
        shares_input: Whether its layer reads what an earlier layer reads, so that one gradient serves both.
        tied: Whether it is a table and a later layer multiplies with all of it, as with a kernel.
        stacked: How many layers it stacks along its first dim, of which an example takes some; 0: none.
        frozen: Whether it stays as it is: it has no gradient and no optimizer state.
        reads: How often a forward pass reads it: its layer does, and each regularizer that adds it to the loss.
        unreached: Whether no gradient reaches it in any step, since the loss does not depend on it; its state is kept.
        skipped: Whether it gets no gradient in any step and every update passes over it, so that it has no optimizer state.
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
        """Whether a step computes a gradient of it, as far as that is the same in every step."""
        return not (self.frozen or self.unreached)

    @property
    def read_by_rows(self) -> bool:
        """Whether a step reads only the rows that are looked up."""
        return self.lookups > 0 and not self.tied

    @property
    def is_factor(self) -> bool:
        """Whether a product takes all of it: a kernel, or a table that is a later layer's kernel."""
        return self.role == "kernel" or self.tied

    @property
    def is_matrix(self) -> bool:
        """Whether it is a kernel of two dimensions; a table is not: each of its rows is looked up alone."""
        return self.role == "kernel" and len(self.shape) == 2

    @functools.cached_property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    def met(self, taken: int) -> int:
        """Returns how many of its elements a token meets that takes so many of the layers that it stacks."""
        return self.size * taken // self.stacked if self.stacked else self.size


@dataclasses.dataclass(frozen=True)
class Segment:
    """The smallest piece a model can be cut into along its depth; all segments in order are the model.

    Attributes:
        name: The path of the segment, which is the prefix of its parameters' names.
        flops: Multiplications and additions of its forward pass, per example.
        outputs: The shape of what it hands to the next segment, per example, in the neutral layout.
        parameters: The names of its parameters, if they are not simply those below its path.
        several: The shapes of the tensors that it hands on, if it is more than one; `outputs` has their size then.
    """

    name: str
    flops: int
    outputs: tuple[int, ...] = ()
    parameters: tuple[str, ...] | None = None
    several: tuple[tuple[int, ...], ...] = ()


MOST_IDS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """One example's array: its shape, and the number of distinct ids in each column (None: real numbers).

    Attributes:
        shape: Without the examples' dimension.
        ids: Ids run from 0 to below this; one number for all, or one per element of the last dimension.
        several: The arrays, each with its name, where an example has several; shape and ids say nothing then.
    """

    shape: tuple[int, ...]
    ids: int | tuple[int, ...] | None = None
    several: tuple[tuple[str, "ArraySpec"], ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether these are whole numbers of which nobody knows how many there are, as targets of a loss of the user's."""
        return isinstance(self.ids, int) and self.ids >= MOST_IDS


@dataclasses.dataclass(frozen=True)
class DataSizes:
    """What a model has to know of its data.

    Attributes:
        input_shape: One example's inputs.
        outputs: The number of distinct targets; of real targets, how many numbers one example has.
        cardinalities: For tables of ids, the number of distinct ids of each column.
        hash_buckets: For tables of ids, the number of ids of a last, crossed column; 0 if there is none.
        loss: What fits the targets: "mean_squared_error" if they are real numbers, else "cross_entropy".
    """

    input_shape: tuple[int, ...]
    outputs: int
    cardinalities: tuple[int, ...] = ()
    hash_buckets: int = 0
    loss: str = "cross_entropy"


class ModelSpec(Protocol):
    """A model as plain numbers: everything answers in milliseconds, at any size.

    Attributes:
        name: The name of its file in all three mirrors.
    """

    name: ClassVar[str]

    @property
    def loss(self) -> str:
        """Its loss: always the mean over every target of the GLOBAL batch.

        "cross_entropy" (logits [..., classes], integer targets [...]), "binary_cross_entropy" (logits [batch], targets
        [batch] of 0 and 1) or "mean_squared_error" (outputs and real targets, both [batch, outputs]: the mean of their
        squared differences over examples and outputs).
        """

    def params(self) -> dict[str, Param]:
        """Returns its parameters by neutral name, in order."""

    def segments(self) -> tuple[Segment, ...]:
        """Returns its smallest pieces, in order."""

    def inputs(self) -> ArraySpec:
        """Returns what one example's inputs look like."""

    def targets(self) -> ArraySpec:
        """Returns what one example's targets look like."""

    @property
    def facts(self) -> ModelFacts:
        """What else is known of it."""

    def fitted(self, sizes: DataSizes) -> Self:
        """Returns the same model with the input and output sizes of a data set.

        Raises:
            ConfigError: The model cannot take such data.
        """


IGNORED = -1
"""The target of a position that does not count."""


def ignores_targets(model: ModelSpec) -> bool:
    """Returns whether some targets do not count, so that each batch has another number of them."""
    return vars(model).get("ignored", 0) > 0 or model.facts.ignores


def num_positions(model: ModelSpec) -> int:
    """Returns how often a layer is applied to one example: once to each token, once to anything else."""
    return math.prod(model.segments()[-1].outputs[:-1])


def num_params(model: ModelSpec) -> int:
    """Returns the number of parameters."""
    return sum(param.size for param in model.params().values())


def num_active(model: ModelSpec) -> int:
    """Returns the number of parameters that a token meets: of stacked experts as many as it takes, of all others every one."""
    return sum(param.met(vars(model).get("top_k", 0)) for param in model.params().values())


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
    """Returns the parameters below each segment's path. Sorted once: a pipeline of a thousand layers asks a thousand times."""
    found: dict[str, dict[str, Param]] = {segment.name: {} for segment in model.segments()}
    for name, param in model.params().items():
        path = layer(name)
        while path not in found:
            assert path, f"{name} belongs to no segment"
            path = layer(path)
        found[path][name] = param
    return found
