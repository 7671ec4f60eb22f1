"""A data set before it is read."""

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Protocol

from samestep.common.workload.models.spec import ModelSpec

if TYPE_CHECKING:
    from samestep.common.workload.data.dataset import Split  # it needs NumPy, which `--help` does without


class DataSpec(Protocol):
    """A data set as plain numbers.

    Attributes:
        name: The name of the data set in tables.
        is_random: Whether the data are drawn at random, so nothing about held-out examples can be learned.
    """

    name: ClassVar[str]
    is_random: ClassVar[bool]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]  # every spec is a dataclass

    def fit(self, model: ModelSpec) -> "tuple[ModelSpec, DataSpec]":
        """Makes model and data agree on their sizes: a model follows real data, synthetic data follow the model."""

    def num_examples(self) -> int:
        """Returns the number of examples to train on.

        Raises:
            Unavailable: The data cannot be loaded, as in `load`.
        """

    def load(self) -> "Split":
        """Reads the arrays.

        Raises:
            Unavailable: The package that contains the file is not installed.
        """
