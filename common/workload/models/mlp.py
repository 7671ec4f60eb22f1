"""A multi-layer perceptron: linear layers with exact GELU, or ReLU, between them."""

import dataclasses
import math
from typing import ClassVar, Self

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.workload.models.parameters import Stated, linear, norm
from samestep.common.workload.models.spec import ACTIVATIONS, NORMS, ArraySpec, DataSizes, Param, Segment


@dataclasses.dataclass(frozen=True)
class MlpSpec(Stated):
    """`layers` linear layers: features -> width -> ... -> width -> outputs, which are classes or real numbers."""

    name: ClassVar[str] = "mlp"

    features: int = 64
    width: int = 128
    layers: int = 4
    outputs: int = 10
    loss: str = "cross_entropy"
    dropout: float = flag(0.0, "the share of hidden activations that a training step drops", least=0, most=0.9)
    activation: str = flag("gelu", "the activation function; relu has a kink at zero", choices=ACTIVATIONS)
    norm: str = flag("none", "how hidden layers are normalized; a norm replaces their biases", choices=NORMS)

    def _sizes(self) -> list[int]:
        return [self.features, *[self.width] * (self.layers - 1), self.outputs]

    def params(self) -> dict[str, Param]:
        """Returns the parameters. Column and row splits alternate, so a pair needs one exchange; an odd last layer is whole."""
        sizes = self._sizes()
        table: dict[str, Param] = {}
        for layer in range(self.layers):
            split = "row" if layer % 2 else "column" if layer + 1 < self.layers else None
            is_hidden = layer + 1 < self.layers
            has_norm = is_hidden and self.norm == "batch"  # it subtracts what a bias would add
            gain = math.sqrt(2) if is_hidden else 1.0
            table |= linear(f"layers/{layer}", sizes[layer], sizes[layer + 1], split, gain, bias=not has_norm)
            table |= norm(f"layers/{layer}/norm", self.width) if has_norm else {}
        return table

    def segments(self) -> tuple[Segment, ...]:
        """Returns one segment per layer."""
        sizes = self._sizes()
        return tuple(Segment(f"layers/{i}", 2 * sizes[i] * sizes[i + 1], (sizes[i + 1],)) for i in range(self.layers))

    def inputs(self) -> ArraySpec:
        """Returns the shape of an example's features, which are real numbers."""
        return ArraySpec((self.features,))

    def targets(self) -> ArraySpec:
        """Returns one class, or for a regression as many real numbers as there are outputs."""
        return ArraySpec((self.outputs,)) if self.loss == "mean_squared_error" else ArraySpec((), self.outputs)

    def fitted(self, sizes: DataSizes) -> Self:
        """Fits the model to real-valued inputs of any shape, which are flattened."""
        if not sizes.input_shape:
            raise ConfigError(
                "the mlp takes real numbers [examples, features], not one number an example; for one feature give "
                "`train_inputs[:, None]`, `test_inputs[:, None]`."
            )
        return dataclasses.replace(self, features=math.prod(sizes.input_shape), outputs=sizes.outputs, loss=sizes.loss)
