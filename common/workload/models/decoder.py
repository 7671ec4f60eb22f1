"""A published language model as numbers, for predictions only; no mirror trains it.

There are two styles, which describe most published decoders:

    gpt      layer norms and biases everywhere, learned positions, an MLP of two layers, and a head tied to the table of tokens
    llama    RMS norms, no biases, rotary positions (no parameters), a gated MLP of three layers, and an untied head

With `routed_experts`, every block but the first `dense_layers` has a mixture of gated MLPs: each token takes `top_k` of them, and
all the shared ones. With `key_rank`, attention is latent: queries are computed from a vector of `query_rank` numbers, and keys
and values from one of `key_rank`; `rotary_width` numbers of each head are rotated by the position, and all heads of keys share
them.

A tied head counts as a part of the table. Not counted are the second copy that a pipeline keeps with the last stage, the head's
exchanges along `tensor`, norms of queries and keys, and the bias by which a router balances its experts. Each of these is less
than 1 % for a large model.

References:
    Radford et al. 2019 (GPT-2); Touvron et al., arXiv 2302.13971, section 2.2 (LLaMA); Ainslie et al., arXiv 2305.13245
    (keys and values shared by groups of heads); DeepSeek-AI, arXiv 2412.19437, section 2.1 (latent attention, shared experts).
"""

import dataclasses
import functools
from typing import ClassVar, Literal, Self

from samestep.common.errors import ConfigError
from samestep.common.workload.models.block_sizes import BlockSizes
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.parameters import linear, norm, stated
from samestep.common.workload.models.spec import ArraySpec, DataSizes, Param, Segment

_SIZES = {field.name for field in dataclasses.fields(BlockSizes)}


@dataclasses.dataclass(frozen=True)
class DecoderSpec:
    """`layers` blocks of attention and an MLP of `hidden` units, on a residual stream of `width`; see the module for `style`.

    Keys and values have `key_heads` heads, each of which serves equally many query heads. A head is `head_width` wide; 0 means
    `width / heads`. Each expert has `expert_hidden` units.
    """

    name: ClassVar[str] = "decoder"
    loss = "cross_entropy"

    style: Literal["gpt", "llama"] = "gpt"
    layers: int = 12
    heads: int = 12
    key_heads: int = 12
    width: int = 768
    hidden: int = 3072
    context: int = 1024
    vocabulary: int = 51200
    head_width: int = 0
    routed_experts: int = 0
    top_k: int = 0
    expert_hidden: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    query_rank: int = 0
    key_rank: int = 0
    rotary_width: int = 0

    def __post_init__(self) -> None:
        if (not self.head_width and self.width % self.heads) or self.heads % self.key_heads:
            raise ConfigError(
                f"width {self.width} does not divide into {self.heads} heads, or these not among {self.key_heads} heads of "
                "keys; give multiples."
            )
        if self.top_k > self.routed_experts:
            raise ConfigError(
                f"a token cannot take {self.top_k} of {self.routed_experts} experts; give at most +top_k={self.routed_experts}."
            )

    @property
    def of_head(self) -> int:
        """The width of a value head; a query head is wider by `rotary_width`."""
        return self.head_width or self.width // self.heads

    @property
    def first_mixture(self) -> int:
        """The number of the first block with a mixture of experts; the number of blocks if there is none."""
        return self.dense_layers if self.routed_experts else self.layers

    def params(self) -> dict[str, Param]:
        """Returns the parameters with Megatron's splits: by column into attention and MLP, by row out of them."""
        return dict(self._params)

    @functools.cached_property
    def _params(self) -> dict[str, Param]:
        """The parameters, made once: a deep model has thousands, and a prediction asks for them many times."""
        table = {"embedding/tokens/table": Param((self.vocabulary, self.width), "table", split=0, lookups=self.context)}
        if self.style == "gpt":
            table["embedding/positions/table"] = Param((self.context, self.width), "table")
        for block in range(self.layers):
            table |= self._block(f"blocks/{block}", block >= self.first_mixture)
        table |= self._norm("head/norm")
        if self.style == "llama":
            table |= linear("head/logits", self.width, self.vocabulary, "column", bias=False)
        return table

    def _block(self, path: str, is_mixture: bool) -> dict[str, Param]:
        table = self._norm(f"{path}/attention_norm")
        table |= self._latent(f"{path}/attention") if self.key_rank else self._attention(f"{path}/attention")
        table |= linear(
            f"{path}/attention/output", self.heads * self.of_head, self.width, "row", bias=self._bias, groups=self.heads
        )
        table |= self._norm(f"{path}/mlp_norm")
        return table | (self._mixture(f"{path}/mlp") if is_mixture else self._mlp(f"{path}/mlp", self.hidden))

    @property
    def _bias(self) -> bool:
        return self.style == "gpt"

    def _attention(self, path: str) -> dict[str, Param]:
        layer = functools.partial(linear, fan_in=self.width, split="column", bias=self._bias)
        table = layer(f"{path}/query", fan_out=self.heads * self.of_head, groups=self.heads)
        shared = functools.partial(
            layer, fan_out=self.key_heads * self.of_head, groups=self.key_heads, shares_input=True
        )
        return table | shared(f"{path}/key") | shared(f"{path}/value")

    def _latent(self, path: str) -> dict[str, Param]:
        """Returns queries, keys and values that are computed from latent vectors, which every rank along `tensor` has whole."""
        of_query, heads = self.of_head + self.rotary_width, self.heads
        table = linear(f"{path}/latent_query", self.width, self.query_rank, bias=False)
        table |= linear(f"{path}/query", self.query_rank, heads * of_query, "column", bias=False, groups=heads)
        table |= linear(f"{path}/latent_key", self.width, self.key_rank + self.rotary_width, bias=False)
        for name, shares in (("key", False), ("value", True)):
            table |= linear(f"{path}/{name}", self.key_rank, heads * self.of_head, "column", 1.0, False, heads, shares)
        return table

    def _mlp(self, path: str, hidden: int) -> dict[str, Param]:
        table = linear(f"{path}/up", self.width, hidden, "column", bias=self._bias)
        if self.style == "llama":
            table |= linear(f"{path}/gate", self.width, hidden, "column", bias=self._bias, shares_input=True)
        return table | linear(f"{path}/down", hidden, self.width, "row", bias=self._bias)

    def _mixture(self, path: str) -> dict[str, Param]:
        count, width, hidden = self.routed_experts, self.width, self.expert_hidden
        table = linear(f"{path}/router", width, count, bias=False)
        layer = functools.partial(linear, bias=False, stacked=count)
        table |= layer(f"{path}/experts/up", width, hidden, "column")
        table |= layer(f"{path}/experts/gate", width, hidden, "column", shares_input=True)
        table |= layer(f"{path}/experts/down", hidden, width, "row")
        return table | (self._mlp(f"{path}/shared", self.shared_experts * hidden) if self.shared_experts else {})

    def _norm(self, name: str) -> dict[str, Param]:
        return norm(name, self.width, bias=self._bias)

    def segments(self) -> tuple[Segment, ...]:
        """Returns the segments: the embedding, each block, and the head."""
        return self._segments

    @functools.cached_property
    def _segments(self) -> tuple[Segment, ...]:
        tokens, width = self.context, self.width
        dense, mixture = self._flops(False), self._flops(True) if self.routed_experts else 0
        return (
            Segment("embedding", tokens * width, (tokens, width)),
            *(
                Segment(f"blocks/{i}", dense if i < self.first_mixture else mixture, (tokens, width))
                for i in range(self.layers)
            ),
            Segment("head", 2 * tokens * width * self.vocabulary, (tokens, self.vocabulary)),
        )

    def _flops(self, is_mixture: bool) -> int:
        """Returns the FLOPs of a block; of a mixture's experts, only as many count as a token takes."""
        tokens, params = self.context, self._block("", is_mixture).values()
        kernels = sum(param.met(self.top_k) for param in params if param.role == "kernel")
        return 2 * tokens * kernels + 2 * tokens**2 * self.heads * (2 * self.of_head + self.rotary_width)

    def inputs(self) -> ArraySpec:
        """Returns the shape of a sequence of token ids."""
        return ArraySpec((self.context,), self.vocabulary)

    def targets(self) -> ArraySpec:
        """Returns the shape of the targets: at every position, the next token."""
        return ArraySpec((self.context,), self.vocabulary)

    @functools.cached_property
    def facts(self) -> ModelFacts:
        """The facts about the model that every mirror would use."""
        alike = {name: value for name, value in vars(self).items() if name in _SIZES}
        shared_hidden = self.shared_experts * self.expert_hidden
        sizes = BlockSizes(is_gated=self.style == "llama", shared_hidden=shared_hidden, **alike)
        return dataclasses.replace(stated(self), sizes=sizes)

    def fitted(self, sizes: DataSizes) -> Self:
        """Refuses data, as none of our data sets has tokens for such a model.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("a published model is predicted without data; leave out --data.")
