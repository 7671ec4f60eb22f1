"""A published language model as numbers: for predictions, no mirror trains it.

Two styles, which between them describe most published decoders:

    gpt      layer norms and biases everywhere, learned positions, an mlp of two layers, and a head that is the table of
             tokens once more (tied)
    llama    RMS norms, no biases, rotary positions (no parameters), a gated mlp of three layers, a head of its own

A tied head is counted where the table is. A pipeline keeps a second copy of it with the last stage, and along `tensor` the
head's own exchanges come on top: both are left out, and are less than 1 % of a giant.

References:
    Radford et al. 2019 (GPT-2); Touvron et al., arXiv 2302.13971, section 2.2 (LLaMA); Ainslie et al., arXiv 2305.13245
    (keys and values shared by groups of heads).
"""

import dataclasses
import functools
from typing import ClassVar, Literal

from samestep.common.errors import ConfigError
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.parameters import linear, norm, stated
from samestep.common.workload.models.spec import ArraySpec, DataSizes, Param, Segment


@dataclasses.dataclass(frozen=True)
class DecoderSpec:
    """`layers` blocks of attention and an mlp of `hidden` units, on a residual stream of `width`; see the module for `style`.

    Keys and values have `key_heads` heads, each of which serves as many heads of queries.
    """

    name: ClassVar[str] = "decoder"
    loss: ClassVar[str] = "cross_entropy"

    style: Literal["gpt", "llama"] = "gpt"
    layers: int = 12
    heads: int = 12
    key_heads: int = 12
    width: int = 768
    hidden: int = 3072
    context: int = 1024
    vocabulary: int = 51200

    def __post_init__(self) -> None:
        if self.width % self.heads or self.heads % self.key_heads:
            raise ConfigError(
                f"width {self.width} does not divide into {self.heads} heads, or these not among {self.key_heads} heads of "
                "keys; give multiples."
            )

    def params(self) -> dict[str, Param]:
        """Megatron's cuts, as of the transformer: by column into attention and mlp, by row out of them."""
        return dict(self._params)

    @functools.cached_property
    def _params(self) -> dict[str, Param]:
        """Made once: a deep model has thousands, and a prediction asks for them many times."""
        table = {"embedding/tokens/table": Param((self.vocabulary, self.width), "table", split=0, lookups=self.context)}
        if self.style == "gpt":
            table["embedding/positions/table"] = Param((self.context, self.width), "table")
        for block in range(self.layers):
            table |= self._block(f"blocks/{block}")
        table |= self._norm("head/norm")
        if self.style == "llama":
            table |= linear("head/logits", self.width, self.vocabulary, "column", bias=False)
        return table

    def _block(self, path: str) -> dict[str, Param]:
        width, hidden, bias = self.width, self.hidden, self.style == "gpt"
        keys, attention = self.width // self.heads * self.key_heads, f"{path}/attention"
        table = self._norm(f"{path}/attention_norm")
        table |= linear(f"{attention}/query", width, width, "column", bias=bias, groups=self.heads)
        for name in ("key", "value"):
            table |= linear(
                f"{attention}/{name}", width, keys, "column", bias=bias, groups=self.key_heads, shares_input=True
            )
        table |= linear(f"{attention}/output", width, width, "row", bias=bias, groups=self.heads)
        table |= self._norm(f"{path}/mlp_norm")
        table |= linear(f"{path}/mlp/up", width, hidden, "column", bias=bias)
        if self.style == "llama":
            table |= linear(f"{path}/mlp/gate", width, hidden, "column", bias=bias, shares_input=True)
        table |= linear(f"{path}/mlp/down", hidden, width, "row", bias=bias)
        return table

    def _norm(self, name: str) -> dict[str, Param]:
        both = norm(name, self.width)
        return both if self.style == "gpt" else {f"{name}/scale": both[f"{name}/scale"]}

    def segments(self) -> tuple[Segment, ...]:
        """Returns the embedding, each block, the head."""
        return self._segments

    @functools.cached_property
    def _segments(self) -> tuple[Segment, ...]:
        tokens, width = self.context, self.width
        kernels = sum(param.size for param in self._block("").values() if param.role == "kernel")
        block = 2 * tokens * kernels + 4 * tokens**2 * width
        return (
            Segment("embedding", tokens * width, (tokens, width)),
            *(Segment(f"blocks/{i}", block, (tokens, width)) for i in range(self.layers)),
            Segment("head", 2 * tokens * width * self.vocabulary, (tokens, self.vocabulary)),
        )

    def blocks(self) -> tuple[Segment, ...]:
        """Lists the segments."""
        return self.segments()

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

    def fitted(self, sizes: DataSizes) -> "DecoderSpec":
        """No data set of ours has tokens for it.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("a published model is predicted without data; leave out --data.")
