"""A ranker: one embedding table per categorical id, whose rows are concatenated, and an MLP that computes one logit."""

import dataclasses
import math
from typing import ClassVar, Self

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.workload.models.parameters import Stated, linear
from samestep.common.workload.models.spec import ACTIVATIONS, ArraySpec, DataSizes, Param, Segment


@dataclasses.dataclass(frozen=True)
class RankerSpec(Stated):
    """Ids -> tables of `embedding` columns -> concatenation -> hidden -> hidden / 2 -> one logit, with activations in between.

    `hash_buckets` is the number of rows of one further table, for crossed ids; 0 leaves the table out.
    """

    name: ClassVar[str] = "ranker"
    loss = "binary_cross_entropy"

    cardinalities: tuple[int, ...] = (1000, 1000, 100, 100)
    hash_buckets: int = 4096
    embedding: int = 8
    hidden: int = 64
    activation: str = flag("gelu", "the activation function; relu has a kink at zero", choices=ACTIVATIONS)

    def __post_init__(self) -> None:
        if self.hidden < 2:
            raise ConfigError(f"hidden={self.hidden} leaves no unit for its half; give 2 or more.")

    def rows(self) -> tuple[int, ...]:
        """Returns the number of rows of each table."""
        return (*self.cardinalities, *((self.hash_buckets,) if self.hash_buckets else ()))

    def params(self) -> dict[str, Param]:
        """Returns the parameters. Tables are split by rows, the tower by column and then by row, and the last layer is whole."""
        table = {
            f"tables/{index}/table": Param((rows, self.embedding), "table", std=0.1, split=0, lookups=1)
            for index, rows in enumerate(self.rows())
        }
        table |= linear("hidden/0", len(self.rows()) * self.embedding, self.hidden, "column", gain=math.sqrt(2))
        table |= linear("hidden/1", self.hidden, self.hidden // 2, "row", gain=math.sqrt(2))
        table |= linear("output", self.hidden // 2, 1)
        return table

    def segments(self) -> tuple[Segment, ...]:
        """Returns all tables as one segment, then one segment per linear layer."""
        features = len(self.rows()) * self.embedding
        return (
            Segment("tables", features, (features,)),
            Segment("hidden/0", 2 * features * self.hidden, (self.hidden,)),
            Segment("hidden/1", 2 * self.hidden * (self.hidden // 2), (self.hidden // 2,)),
            Segment("output", self.hidden),
        )

    def inputs(self) -> ArraySpec:
        """Returns the shape of an example's ids, one per table."""
        return ArraySpec((len(self.rows()),), self.rows())

    def targets(self) -> ArraySpec:
        """Returns the shape of a target, which is 0 or 1."""
        return ArraySpec((), 2)

    def fitted(self, sizes: DataSizes) -> Self:
        """Fits the model to columns of ids, each of which gets a table."""
        if not sizes.cardinalities:
            raise ConfigError("the ranker takes whole-number ids [examples, columns] and targets 0 or 1.")
        return dataclasses.replace(self, cardinalities=sizes.cardinalities, hash_buckets=sizes.hash_buckets)
