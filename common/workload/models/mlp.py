"""A multi-layer perceptron: linear layers with exact GELU between them."""

import dataclasses
import math
from typing import ClassVar

from samestep.common.workload.models.spec import ArraySpec, DataSizes, Param, Segment, linear


@dataclasses.dataclass(frozen=True)
class MlpSpec:
    """`layers` linear layers: features -> width -> ... -> width -> classes."""

    name: ClassVar[str] = "mlp"
    loss: ClassVar[str] = "cross_entropy"

    features: int = 64
    width: int = 128
    layers: int = 4
    classes: int = 10

    def _sizes(self) -> list[int]:
        return [self.features, *[self.width] * (self.layers - 1), self.classes]

    def params(self) -> dict[str, Param]:
        """Column and row cuts alternate, so that each pair of layers needs one exchange; an odd last layer is whole."""
        sizes = self._sizes()
        table: dict[str, Param] = {}
        for layer in range(self.layers):
            split = "row" if layer % 2 else "column" if layer + 1 < self.layers else None
            gain = math.sqrt(2) if layer + 1 < self.layers else 1.0
            table |= linear(f"layers/{layer}", sizes[layer], sizes[layer + 1], split, gain)
        return table

    def segments(self) -> tuple[Segment, ...]:
        """One segment a layer."""
        sizes = self._sizes()
        return tuple(Segment(f"layers/{i}", 2 * sizes[i] * sizes[i + 1], (sizes[i + 1],)) for i in range(self.layers))

    def inputs(self) -> ArraySpec:
        """Flat real features."""
        return ArraySpec((self.features,))

    def targets(self) -> ArraySpec:
        """One class."""
        return ArraySpec((), self.classes)

    def fitted(self, sizes: DataSizes) -> "MlpSpec":
        """Any shape of real inputs is flattened."""
        return dataclasses.replace(self, features=math.prod(sizes.input_shape), classes=sizes.num_classes)
