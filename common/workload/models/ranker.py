"""A ranker: one embedding table per categorical id, concatenated, then an MLP with GELU to one logit."""

import dataclasses
import functools
import math
from typing import ClassVar, Self

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.parameters import linear, stated
from samestep.common.workload.models.spec import ACTIVATIONS, ArraySpec, DataSizes, Param, Segment


@dataclasses.dataclass(frozen=True)
class RankerSpec:
    """Ids -> tables of `embedding` columns -> concatenation -> hidden -> hidden / 2 -> one logit; exact GELU between.

    `hash_buckets` is the number of rows of one further table, for crossed ids; 0 leaves the table out.
    """

    name: ClassVar[str] = "ranker"
    loss = "binary_cross_entropy"

    cardinalities: tuple[int, ...] = (1000, 1000, 100, 100)
    hash_buckets: int = 4096
    embedding: int = 8
    hidden: int = 64
    activation: str = flag("gelu", "what is applied between two layers; relu has a kink", choices=ACTIVATIONS)

    def __post_init__(self) -> None:
        if self.hidden < 2:
            raise ConfigError(f"hidden={self.hidden} leaves no unit for its half; give 2 or more.")

    def rows(self) -> tuple[int, ...]:
        """Returns the number of rows of each table."""
        return (*self.cardinalities, *((self.hash_buckets,) if self.hash_buckets else ()))

    def params(self) -> dict[str, Param]:
        """Returns the parameters: tables are cut by rows, the tower by column, then by row, and the logit's layer is whole."""
        table = {
            f"tables/{index}/table": Param((rows, self.embedding), "table", std=0.1, split=0, lookups=1)
            for index, rows in enumerate(self.rows())
        }
        table |= linear("hidden/0", len(self.rows()) * self.embedding, self.hidden, "column", gain=math.sqrt(2))
        table |= linear("hidden/1", self.hidden, self.hidden // 2, "row", gain=math.sqrt(2))
        table |= linear("output", self.hidden // 2, 1)
        return table

    def segments(self) -> tuple[Segment, ...]:
        """All tables together, then one cut a linear layer."""
        features = len(self.rows()) * self.embedding
        return (
            Segment("tables", features, (features,)),
            Segment("hidden/0", 2 * features * self.hidden, (self.hidden,)),
            Segment("hidden/1", 2 * self.hidden * (self.hidden // 2), (self.hidden // 2,)),
            Segment("output", self.hidden),
        )

    def inputs(self) -> ArraySpec:
        """Returns one id per table."""
        return ArraySpec((len(self.rows()),), self.rows())

    def targets(self) -> ArraySpec:
        """0 or 1."""
        return ArraySpec((), 2)

    @functools.cached_property
    def facts(self) -> ModelFacts:
        """What every mirror states of it."""
        return dataclasses.replace(stated(self), activation=self.activation)

    def fitted(self, sizes: DataSizes) -> Self:
        """Returns one table per column of ids."""
        if not sizes.cardinalities:
            raise ConfigError("the ranker takes whole-number ids [examples, columns] and targets 0 or 1.")
        return dataclasses.replace(self, cardinalities=sizes.cardinalities, hash_buckets=sizes.hash_buckets)
