"""1,797 grey 8x8 digits (UCI optical digits), from scikit-learn's own data file; every fifth is held out.

References:
    Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998.
"""

import dataclasses
from typing import ClassVar

from samestep.common.workload.data.dataset import Split, cached, package_file
from samestep.common.workload.data.images import decode_images
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import DataSizes, ModelSpec


@dataclasses.dataclass(frozen=True)
class DigitsSpec:
    """Images [8, 8, 1] of values 0 to 1 (sixteenths), classes 0 to 9."""

    name: ClassVar[str] = "digits"

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """The model follows the data."""
        return model.fitted(DataSizes((8, 8, 1), 10)), self

    def load(self) -> Split:
        """Reads `sklearn/datasets/data/digits.csv.gz`; scikit-learn is not imported."""
        return cached(package_file("sklearn", "datasets/data/digits.csv.gz").read_bytes(), decode_images, 8, 16)
