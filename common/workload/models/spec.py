"""What a model is before any framework: a table of parameters and a list of cuts."""

import dataclasses
import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import numpy as np

from common.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Param:
    """One parameter of a model.

    Attributes:
        shape: In the neutral layout: linear kernels [in, out], convolution kernels [height, width, in, out],
            embedding tables [rows, width].
        std: Standard deviation of its initial values, drawn from a normal distribution; 0 draws nothing.
        constant: What is added to the drawn values.
        split: The axis along which it may be cut (the neutral split table); None: keep it whole.
        lookups: How many of its rows one example looks up by id; 0: every example reads all of it.
    """

    shape: tuple[int, ...]
    std: float = 0.0
    constant: float = 0.0
    split: int | None = None
    lookups: int = 0

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Cut:
    """The smallest piece a model can be cut into along its depth; all cuts in order are the model.

    Attributes:
        name: The path of the piece, which is the prefix of its parameters' names.
        flops: Multiplications and additions of its forward pass, per example.
        outputs: The shape of what it hands to the next piece, per example, in the neutral layout.
    """

    name: str
    flops: int
    outputs: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """One example's array: its shape, and the number of distinct ids in each column (None: real numbers).

    Attributes:
        shape: Without the examples' dimension.
        ids: Ids run from 0 to below this; one number for all, or one per element of the last dimension.
    """

    shape: tuple[int, ...]
    ids: int | tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class DataSizes:
    """What a model has to know of its data.

    Attributes:
        input_shape: One example's inputs.
        num_classes: The number of distinct targets.
        cardinalities: For tables of ids: the number of distinct ids of each column.
        hash_buckets: For tables of ids: the number of ids of a last, crossed column; 0 if there is none.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    cardinalities: tuple[int, ...] = ()
    hash_buckets: int = 0


class ModelSpec(Protocol):
    """A model as plain numbers: everything answers in milliseconds, at any size.

    Attributes:
        name: The name of its file in all three mirrors.
        loss: "cross_entropy" (logits [..., classes], integer targets [...]) or "binary_cross_entropy" (logits [batch],
            targets [batch] of 0 and 1). Always the mean over every target of the GLOBAL batch.
    """

    name: str
    loss: str

    def params(self) -> dict[str, Param]:
        """Its parameters by neutral name, in order."""

    def cuts(self) -> tuple[Cut, ...]:
        """Its smallest pieces, in order."""

    def inputs(self) -> ArraySpec:
        """What one example's inputs look like."""

    def targets(self) -> ArraySpec:
        """What one example's targets look like."""

    def fitted(self, sizes: DataSizes) -> Self:
        """The same model with the input and output sizes of a data set.

        Raises:
            ConfigError: The model cannot take such data.
        """


def linear(
    name: str, fan_in: int, fan_out: int, split: str | None = None, gain: float = 1.0, bias: bool = True
) -> dict[str, Param]:
    """The parameters of a linear layer.

    Args:
        name: Its path.
        fan_in: Input features.
        fan_out: Output features.
        split: "column" (the outputs are cut), "row" (the inputs are cut; the bias stays whole) or None.
        gain: Times the standard deviation 1 / sqrt(fan_in).
        bias: Whether it has one.
    """
    axis = {"column": 1, "row": 0, None: None}[split]
    kernel = Param((fan_in, fan_out), std=gain / math.sqrt(fan_in), split=axis)
    table = {f"{name}/kernel": kernel}
    if bias:
        table[f"{name}/bias"] = Param((fan_out,), split=0 if split == "column" else None)
    return table


def split_table(model: ModelSpec) -> dict[str, int]:
    """Parameter name -> the axis along which it may be cut; what is not in it stays whole."""
    return {name: param.split for name, param in model.params().items() if param.split is not None}


def even_split_table(model: ModelSpec, parts: int) -> dict[str, int]:
    """The split table where only equal parts can be held; a table of rows that do not divide stays whole.

    Args:
        model: Its spec.
        parts: Into how many parts each parameter is cut.

    Raises:
        ConfigError: Another parameter does not divide.
    """
    table = {}
    for name, axis in split_table(model).items():
        param = model.params()[name]
        if param.shape[axis] % parts == 0:
            table[name] = axis
        elif not param.lookups:
            raise ConfigError(
                f"{name} {list(param.shape)} does not cut into {parts} equal parts along dimension {axis}; use a tensor "
                f"axis that divides {param.shape[axis]}, or a model of another width."
            )
    return table


def num_params(model: ModelSpec) -> int:
    """The number of parameters."""
    return sum(param.size for param in model.params().values())


def step_flops(model: ModelSpec, batch_size: int) -> int:
    """FLOPs of one training step on a batch: the backward pass counts twice the forward pass."""
    return 3 * batch_size * sum(cut.flops for cut in model.cuts())


def init(model: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """Draws the initial parameters, the same numbers for every framework, strategy and dtype.

    Each parameter has its own stream, from (seed, name), so that a process may draw only what it holds. Drawn in
    float64 and rounded once to float32-representable numbers, so that both dtypes start bit-equal.

    Returns:
        Parameter name -> float64 array.
    """
    values = {}
    for name, param in model.params().items():
        value = np.full(param.shape, param.constant)
        if param.std:
            stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
            value += stream.normal(scale=param.std, size=param.shape)
        values[name] = value.astype(np.float32).astype(np.float64)
    return values


def stages(cuts: Sequence[Cut], count: int) -> tuple[tuple[Cut, ...], ...]:
    """Groups cuts into `count` contiguous stages whose largest has the fewest FLOPs possible.

    Args:
        cuts: A model's cuts, in order; at least `count` of them.
        count: The number of stages (pipeline ranks x virtual stages).
    """
    total = [0]
    for cut in cuts:
        total.append(total[-1] + cut.flops)
    best: Mapping[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    for stage in range(1, count + 1):
        best = {
            (stage, end): min(
                (max(best[stage - 1, start][0], total[end] - total[start]), (*best[stage - 1, start][1], start))
                for start in range(stage - 1, end)
                if (stage - 1, start) in best
            )
            for end in range(stage, len(cuts) + 1)
        }
    starts = (*best[count, len(cuts)][1], len(cuts))
    return tuple(tuple(cuts[start:end]) for start, end in itertools.pairwise(starts))
