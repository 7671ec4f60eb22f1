"""A pre-LN causal transformer: learned positions, separate q, k and v, exact GELU; the head is tied if asked for.

The key projection has no bias: its true gradient is zero (softmax does not see a constant added to every score), and
Adam would amplify the rounding noise that stands in its place.
"""

import dataclasses
import functools
import math
from typing import ClassVar

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.parameters import linear, norm, stacked, stated
from samestep.common.workload.models.spec import ACTIVATIONS, ArraySpec, DataSizes, Param, Segment

NORM_EPSILON = 1e-5
TOKENS = "embedding/tokens/table"
"""The table of tokens, which a tied head reads as well."""
LOGITS = "head/logits"
"""The last layer."""


@dataclasses.dataclass(frozen=True)
class TransformerSpec:
    """`layers` blocks of attention and a four times wider mlp, both on a residual stream of `width`.

    With `experts` the mlp is a mixture of so many: a router of one linear layer gives each token a probability for each, the
    token takes the `top_k` largest, and adds up what these return, weighted by their probabilities over the sum of those. No
    token is dropped. `common/features/experts/balance.py` has the load-balancing loss.
    """

    name: ClassVar[str] = "transformer"
    loss: ClassVar[str] = "cross_entropy"

    layers: int = 4
    heads: int = 4
    width: int = 96
    context: int = 64
    vocabulary: int = dataclasses.field(default=256, metadata={"may_exceed_data": True})
    tied: bool = flag(False, "the head multiplies with the table of tokens instead of a kernel of its own")
    dropout: float = flag(0.0, "the share of hidden elements that a training step drops", least=0, most=0.9)
    ignored: float = flag(
        0.0, "the share of training targets that do not count, more in some examples", least=0, most=0.5
    )
    activation: str = flag("gelu", "what is applied between two layers; relu has a kink", choices=ACTIVATIONS)
    experts: int = flag(0, "the mlps of each block, of which every token takes top_k; 0: one, which all take", least=0)
    top_k: int = flag(2, "how many of the experts of a block a token takes, by the largest probabilities", least=1)
    balance: float = flag(0.01, "how much the load-balancing loss of each block's experts counts", least=0)

    def __post_init__(self) -> None:
        if self.experts and self.top_k > self.experts:
            raise ConfigError(
                f"a token cannot take {self.top_k} of {self.experts} experts; give at most +top_k={self.experts}."
            )
        if self.heads > self.width:
            raise ConfigError(f"{self.heads} heads are more than the width {self.width}; give fewer.")
        if self.width % self.heads:
            raise ConfigError(
                f"width {self.width} does not divide into {self.heads} heads; give a multiple of {self.heads}."
            )

    def params(self) -> dict[str, Param]:
        """Megatron's cuts: q, k, v and up by column (whole heads), the two outputs by row, vocabulary by row and column."""
        return dict(self._params)

    @functools.cached_property
    def _params(self) -> dict[str, Param]:
        """Made once: a deep model has thousands, and a prediction asks for them many times."""
        width = self.width
        residual = 1 / math.sqrt(2 * self.layers)
        table = {
            TOKENS: Param((self.vocabulary, width), "table", std=0.1, split=0, lookups=self.context, tied=self.tied),
            "embedding/positions/table": Param((self.context, width), "table", std=0.1),
        }
        for block in range(self.layers):
            path = f"blocks/{block}"
            table |= norm(f"{path}/attention_norm", width)
            attention, heads = f"{path}/attention", self.heads
            table |= linear(f"{attention}/query", width, width, "column", groups=heads)
            table |= linear(f"{attention}/key", width, width, "column", bias=False, groups=heads, shares_input=True)
            table |= linear(f"{attention}/value", width, width, "column", groups=heads, shares_input=True)
            table |= linear(f"{attention}/output", width, width, "row", gain=residual, groups=heads)
            table |= norm(f"{path}/mlp_norm", width)
            if self.experts:
                table |= linear(f"{path}/mlp/router", width, self.experts, bias=False)
                table |= stacked(f"{path}/mlp/up", self.experts, width, 4 * width)
                table |= stacked(f"{path}/mlp/down", self.experts, 4 * width, width, gain=residual)
                continue
            table |= linear(f"{path}/mlp/up", width, 4 * width, "column")
            table |= linear(f"{path}/mlp/down", 4 * width, width, "row", gain=residual)
        table |= norm("head/norm", width)
        if not self.tied:
            table |= linear(LOGITS, width, self.vocabulary, "column", bias=False)
        return table

    def segments(self) -> tuple[Segment, ...]:
        """Returns the embedding, each block, the head."""
        return self._segments

    @functools.cached_property
    def _segments(self) -> tuple[Segment, ...]:
        tokens, width = self.context, self.width
        mlp = self.top_k * 8 * width**2 + width * self.experts if self.experts else 8 * width**2
        block = 2 * tokens * (4 * width**2 + mlp) + 4 * tokens**2 * width
        return (
            Segment("embedding", tokens * width, (tokens, width)),
            *(Segment(f"blocks/{i}", block, (tokens, width)) for i in range(self.layers)),
            Segment("head", 2 * tokens * width * self.vocabulary, (tokens, self.vocabulary), self._of_tied_head()),
        )

    def _of_tied_head(self) -> tuple[str, ...] | None:
        return (*norm("head/norm", self.width), TOKENS) if self.tied else None

    def blocks(self) -> tuple[Segment, ...]:
        """Lists the segments; without those that share the tied table, which is there for the whole step."""
        return self.segments()[1:-1] if self.tied else self.segments()

    def inputs(self) -> ArraySpec:
        """Returns one sequence of token ids."""
        return ArraySpec((self.context,), self.vocabulary)

    def targets(self) -> ArraySpec:
        """At every position, the token that comes next."""
        return ArraySpec((self.context,), self.vocabulary)

    @property
    def facts(self) -> ModelFacts:
        """What every mirror states of it."""
        return stated(self)

    def fitted(self, sizes: DataSizes) -> "TransformerSpec":
        """The context is the length of the data's sequences; inputs and targets share one vocabulary."""
        if len(sizes.input_shape) != 1:
            raise ConfigError(
                f"the transformer takes token ids [examples, context], not examples of shape {list(sizes.input_shape)}."
            )
        return dataclasses.replace(self, context=sizes.input_shape[0], vocabulary=sizes.outputs)
