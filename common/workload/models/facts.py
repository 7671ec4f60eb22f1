"""What is known of a model beside its shapes: whatever else a strategy, a cost or a judge asks of it."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from samestep.common.workload.models.findings import DescribedOptimizer, TwoBytes, Use
from samestep.common.workload.models.habits import Habits
from samestep.common.workload.models.returned import Returns

if TYPE_CHECKING:
    from samestep.common.workload.models.spec import ModelSpec

ORACLE_FRAMEWORK = "numpy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The defaults are those of a model that every mirror builds from its shapes.

    Attributes:
        reference_framework: The framework whose reference row judges its runs, in float64.
        counterpart: The same model in another framework, which has the reference and the initial weights.
        frameworks: Those that can build it; none listed: all.
        source: The user's file and the name in it, if its code comes from one.
        folder: Where its initial weights and buffers lie, if they are not drawn here.
        is_built_here: Whether a mirror builds it layer by layer, and so decides where and how each of its tensors is made.
        takes_whole_logits: Whether its loss needs all logits of an example on one device.
        ties_stages: Whether two stages of a pipeline can hold one parameter together.
        may_lack_gradients: Whether the true gradient of a parameter may be zero, so that only rounding is left of it.
        rounded: Its forward pass in two bytes a number.
        buffers: The shapes of the buffers that only its framework knows how to move.
        whole_buffers: Those of them that hold whole numbers.
        framework_norms: The layers of its framework that normalise over the batch, with their channels.
        dtypes: The tensors that are not in the default dtype, by the framework's own name.
        habits: What a forward pass in training depends on beside an example and the weights.
        sums: The layers that add to the loss what is no mean over examples.
        reduction: What makes a batch's loss of the losses of its parts, see `declaration.REDUCTIONS`; "own" is a function.
        ignores: Whether targets below 0 do not count.
        returns: What it hands to its loss.
        unread: The places of what it returns and its loss does not read.
        optimizer: That of the user's file, if there is one.
        unused: The parameters that got no gradient when it was tried.
        branches: Whether those without a gradient may be others in another step.
        uses: How a step uses its layers and blocks, by path.
        other_use: How it uses those that `uses` does not list.
    """

    reference_framework: str = ORACLE_FRAMEWORK
    counterpart: "ModelSpec | None" = None
    frameworks: tuple[str, ...] = ()
    source: str = ""
    folder: str | None = None
    is_built_here: bool = True
    takes_whole_logits: bool = False
    ties_stages: bool = True
    may_lack_gradients: bool = False
    rounded: TwoBytes = dataclasses.field(default_factory=TwoBytes)
    buffers: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    whole_buffers: tuple[str, ...] = ()
    framework_norms: Mapping[str, int] = dataclasses.field(default_factory=dict)
    dtypes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    habits: Habits = dataclasses.field(default_factory=Habits)
    sums: tuple[str, ...] = ()
    reduction: str = "targets"
    ignores: bool = False
    returns: Returns = "outputs"
    unread: tuple[int, ...] = ()
    optimizer: DescribedOptimizer | None = None
    unused: tuple[str, ...] = ()
    branches: bool = False
    uses: Mapping[str, Use] = dataclasses.field(default_factory=dict)
    other_use: Use = dataclasses.field(default_factory=Use)

    @property
    def has_oracle(self) -> bool:
        """Whether the oracle takes its steps."""
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
