"""Facts about a model besides its shapes: everything else that a strategy, a cost model or a judge needs."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from samestep.common.flags import Scalar
from samestep.common.frameworks import ORACLE_FRAMEWORK
from samestep.common.workload.models.block_sizes import NO_BLOCKS, BlockSizes
from samestep.common.workload.models.findings import DeclaredFindings, Use

if TYPE_CHECKING:
    from samestep.common.workload.models.spec import ModelSpec, Segment


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFacts(DeclaredFindings):
    """Facts about a model. The defaults, also of the findings, are for a model that every mirror builds from its shapes.

    Attributes:
        reference_framework: The framework whose reference row judges its runs, in float64.
        counterpart: The same model in another framework, which provides the reference and the initial weights.
        blocks: The blocks that fully sharded data parallelism gathers together; parameters outside of them stay for the whole
            step.
        folder: The folder of its initial weights and buffers; None if they are drawn here.
        is_built_here: Whether a mirror builds it layer by layer, and so controls where and how each of its tensors is made.
        takes_whole_logits: Whether its loss needs all logits of an example on one device.
        ties_stages: Whether two stages of a pipeline can share one parameter.
        may_lack_gradients: Whether the true gradient of a parameter may be zero, so its computed gradient is only rounding.
        featured: Feature of a model -> the layers of its framework that have it, with their channels.
        other_use: The use of the layers that `uses` does not list.
        sizes: The sizes of its blocks of attention and an MLP, as used in its formulas; all 0 if it has no such formulas.
        activation: The activation of one of our models.
        settings: The values of the flags of one of our models, by name; its features read them.
    """

    reference_framework: str = ORACLE_FRAMEWORK
    counterpart: "ModelSpec | None" = None
    blocks: "tuple[Segment, ...]" = ()
    folder: str | None = None
    is_built_here: bool = True
    takes_whole_logits: bool = False
    ties_stages: bool = True
    may_lack_gradients: bool = False
    featured: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    other_use: Use = dataclasses.field(default_factory=Use)
    sizes: BlockSizes = NO_BLOCKS
    activation: str = ""
    settings: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)

    @property
    def has_oracle(self) -> bool:
        """Whether the oracle is the reference of its runs."""
        return self.reference_framework == ORACLE_FRAMEWORK

    @property
    def may_skip(self) -> bool:
        """Whether a step may leave a parameter without a gradient."""
        return bool(self.unused or self.branches)

    def use_of(self, path: str) -> Use:
        """Returns how a step uses a layer or a block.

        Args:
            path: Its path.
        """
        return self.uses.get(path, self.other_use)
