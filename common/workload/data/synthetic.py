"""Random data of any size, for throughput: the shapes follow the model, and the targets can only be memorized."""

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np  # imported only where arrays are made: a prediction needs none

from samestep.common.errors import Unavailable
from samestep.common.files.reading import memory_bytes
from samestep.common.workload.array_type import Array
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import ArraySpec, ModelSpec

_UNSET = ArraySpec(())  # until `fit` has seen the model


@dataclasses.dataclass(frozen=True)
class SyntheticSpec:
    """`examples` to train on and an eighth as many held out, drawn from one fixed stream."""

    name: ClassVar[str] = "synthetic"
    is_random: ClassVar[bool] = True

    examples: int = 2048
    inputs: ArraySpec = _UNSET
    targets: ArraySpec = _UNSET

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """Makes the shapes of the data follow the model."""
        return model, dataclasses.replace(self, inputs=model.inputs(), targets=model.targets())

    def num_examples(self) -> int:
        """Returns the number of examples without drawing them.

        Raises:
            Unavailable: The examples need more memory than this machine has.
        """
        needed = 8 * self.examples * (math.prod(self.inputs.shape) + math.prod(self.targets.shape))
        if needed > memory_bytes():
            raise Unavailable(
                f"{self.examples} examples of shape {list(self.inputs.shape)} take {needed / 2**30:.3g} GiB, and this machine "
                f"has {memory_bytes() / 2**30:.3g} GiB; give fewer or smaller ones."
            )
        return self.examples

    def load(self) -> Split:
        """Draws the arrays. Real numbers are rounded to numbers that float32 can represent."""
        import numpy as np

        stream = np.random.default_rng(0)
        sizes = (self.examples, max(1, self.examples // 8))
        train, test = ([_draw(stream, size, spec) for spec in (self.inputs, self.targets)] for size in sizes)
        return Split(*train, *test)


def _draw(stream: "np.random.Generator", size: int, spec: ArraySpec) -> Array:
    import numpy as np

    if spec.ids is None:
        return stream.normal(size=(size, *spec.shape)).astype(np.float32).astype(np.float64)
    return stream.integers(0, spec.ids, size=(size, *spec.shape))
