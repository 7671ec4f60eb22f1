"""BabyCNN: two convolution blocks and a two-layer head, on images [height, width, channels].

The defaults are GELU and average pooling, because no model here has a kink by default. A ReLU or a maximum that rounding tips
over changes a gradient by a finite amount, and Adam scales that to the full rate. With them, float32 runs deviate from the
oracle by 1e-2 within 100 steps; without them, by at most 1e-6. The maximum of equal elements in a window is the first one.
"""

import dataclasses
import math
from typing import ClassVar, Self

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.workload.models.parameters import Stated, linear, norm
from samestep.common.workload.models.spec import ACTIVATIONS, NORMS, POOLINGS, ArraySpec, DataSizes, Param, Segment

_MOST_CHANNELS = 4
"""The largest number of channels of an image: gray, or red-green-blue, with or without transparency."""


@dataclasses.dataclass(frozen=True)
class CnnSpec(Stated):
    """Two blocks of 3x3 convolution (same padding), GELU and 2x2 average pooling; then linear, GELU, linear."""

    name: ClassVar[str] = "cnn"

    image: tuple[int, int, int] = (28, 28, 1)
    filters: int = 8
    hidden: int = 64
    outputs: int = 10
    loss: str = "cross_entropy"
    activation: str = flag("gelu", "the activation function; relu has a kink at zero", choices=ACTIVATIONS)
    pooling: str = flag(
        "average", "how each 2x2 window is pooled; max has kinks where two values are equal", choices=POOLINGS
    )
    norm: str = flag("none", "how convolutions are normalized; a norm replaces their biases", choices=NORMS)

    def _features(self) -> int:
        return (self.image[0] // 4) * (self.image[1] // 4) * 2 * self.filters

    def params(self) -> dict[str, Param]:
        """Returns the parameters. Filters stay whole; the head's layers are split by column and by row."""
        table: dict[str, Param] = {}
        for block, (fan_in, fan_out) in enumerate(((self.image[2], self.filters), (self.filters, 2 * self.filters))):
            table[f"blocks/{block}/kernel"] = Param((3, 3, fan_in, fan_out), "kernel", std=math.sqrt(2 / (9 * fan_in)))
            if self.norm == "batch":  # it subtracts what a bias would add
                table |= norm(f"blocks/{block}/norm", fan_out)
            else:
                table[f"blocks/{block}/bias"] = Param((fan_out,), "bias")
        table |= linear("hidden", self._features(), self.hidden, "column", gain=math.sqrt(2))
        table |= linear("output", self.hidden, self.outputs, "row")
        return table

    def segments(self) -> tuple[Segment, ...]:
        """Returns four segments: two blocks and two linear layers."""
        height, width, channels = self.image
        half, quarter = (height // 2, width // 2), (height // 4, width // 4)
        return (
            Segment("blocks/0", 2 * height * width * 9 * channels * self.filters, (*half, self.filters)),
            Segment(
                "blocks/1", 2 * math.prod(half) * 9 * self.filters * 2 * self.filters, (*quarter, 2 * self.filters)
            ),
            Segment("hidden", 2 * self._features() * self.hidden, (self.hidden,)),
            Segment("output", 2 * self.hidden * self.outputs, (self.outputs,)),
        )

    def inputs(self) -> ArraySpec:
        """Returns the shape of an image, channels last."""
        return ArraySpec(self.image)

    def targets(self) -> ArraySpec:
        """Returns one class, or for a regression as many real numbers as there are outputs."""
        return ArraySpec((self.outputs,)) if self.loss == "mean_squared_error" else ArraySpec((), self.outputs)

    def fitted(self, sizes: DataSizes) -> Self:
        """Fits the model to images; gray-scale images may lack the dimension of channels."""
        shape = sizes.input_shape if len(sizes.input_shape) == 3 else (*sizes.input_shape, 1)
        if len(shape) == 3 and shape[0] <= _MOST_CHANNELS < min(shape[1:]):
            raise ConfigError(
                f"the cnn takes images [height, width, channels], and {list(shape)} looks like [channels, height, width]; "
                f"transpose them: `train_inputs.transpose(0, 2, 3, 1)`, `test_inputs.transpose(0, 2, 3, 1)`."
            )
        if len(shape) != 3 or shape[0] % 4 or shape[1] % 4:
            raise ConfigError(
                f"the cnn takes images [height, width, channels] whose height and width are multiples of 4, not "
                f"{list(sizes.input_shape)}; pad them, or choose an mlp workload."
            )
        return dataclasses.replace(self, image=(shape[0], shape[1], shape[2]), outputs=sizes.outputs, loss=sizes.loss)
