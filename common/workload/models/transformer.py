"""A causal transformer with norms before attention and MLP, in the two styles of most decoders.

    gpt      layer norms, biases, learned positions, an MLP of two layers, four times as wide, exact GELU
    llama    RMS norms, no biases, rotary positions, which have no parameters, and a gated MLP (SwiGLU), 8/3 as wide

In both, q, k and v are separate, keys and values may have fewer heads than queries, and the head is tied if requested. The key
projection has no bias: its true gradient would be zero (a constant added to every score does not change the softmax), and Adam
would amplify the rounding noise that is computed in its place.

References:
    Radford et al. 2019 (GPT-2); Touvron et al., arXiv 2302.13971, section 2.2 (LLaMA); Su et al., arXiv 2104.09864 (rotary);
    Ainslie et al., arXiv 2305.13245 (keys and values shared by groups of heads).
"""

import dataclasses
import functools
import math
from typing import ClassVar, Self

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.workload.models.block_sizes import BlockSizes
from samestep.common.workload.models.facts import ModelFacts
from samestep.common.workload.models.parameters import linear, norm, stated
from samestep.common.workload.models.spec import ACTIVATIONS, ArraySpec, DataSizes, Param, Segment

NORM_EPSILON = 1e-5
TOKENS = "embedding/tokens/table"
"""The table of tokens, which a tied head uses as well."""
LOGITS = "head/logits"
"""The last layer."""
STYLES = ("gpt", "llama")
ROTARY_BASE = 10_000.0
_HIDDEN_MULTIPLE = 16
"""The width of a gated MLP is rounded up to a multiple of this number, so it divides among the ranks of a tensor axis."""


@dataclasses.dataclass(frozen=True)
class TransformerSpec:
    """A transformer of `layers` blocks of attention and MLP, on a residual stream of `width`; see the module for `style`.

    With `experts`, each MLP is a mixture of that many: a router with one linear layer gives each token a probability for each
    expert. The token takes the `top_k` likeliest experts, and sums their outputs, weighted by their normalized probabilities. No
    token is dropped. `common/features/experts/balance.py` has the load-balancing loss.
    """

    name: ClassVar[str] = "transformer"
    loss = "cross_entropy"

    layers: int = 4
    heads: int = 4
    width: int = 96
    context: int = 64
    vocabulary: int = dataclasses.field(default=256, metadata={"may_exceed_data": True})
    style: str = flag("gpt", "llama has RMS norms, rotary positions, a gated MLP and no biases", choices=STYLES)
    key_heads: int = flag(
        0,
        "number of heads of keys and values, each shared by equally many query heads; 0: one for each query head",
        least=0,
    )
    tied: bool = flag(False, "use the table of token embeddings as the kernel of the head")
    dropout: float = flag(0.0, "the share of hidden activations that a training step drops", least=0, most=0.9)
    ignored: float = flag(
        0.0,
        "the share of training targets that the loss ignores, larger in some examples than in others",
        least=0,
        most=0.5,
    )
    activation: str = flag("gelu", "the activation function; relu has a kink at zero", choices=ACTIVATIONS)
    experts: int = flag(
        0, "number of expert MLPs in each block, of which each token takes top_k; 0: one MLP for all tokens", least=0
    )
    top_k: int = flag(
        2, "number of experts in each block that a token takes: those with the largest probabilities", least=1
    )
    balance: float = flag(0.01, "weight of the load-balancing loss of each block's experts", least=0)

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
        if self.key_heads and self.heads % self.key_heads:
            raise ConfigError(
                f"{self.heads} heads do not divide among {self.key_heads} heads of keys; give a +key_heads= that divides them."
            )
        if self.is_llama:
            self._check_llama()

    def _check_llama(self) -> None:
        if self.width // self.heads % 2:
            raise ConfigError(
                f"rotary positions turn pairs, and {self.width} / {self.heads} is odd; give a multiple of {2 * self.heads}."
            )
        if self.activation != "gelu":
            raise ConfigError(
                f"+style=llama has an activation of its own (SiLU); leave out +activation={self.activation} or +style=."
            )

    @property
    def is_llama(self) -> bool:
        """Whether the style is that of LLaMA."""
        return self.style == "llama"

    @property
    def num_key_heads(self) -> int:
        """The number of heads of the keys, and of the values."""
        return self.key_heads or self.heads

    @property
    def hidden(self) -> int:
        """The number of hidden units of an MLP."""
        return -(-8 * self.width // (3 * _HIDDEN_MULTIPLE)) * _HIDDEN_MULTIPLE if self.is_llama else 4 * self.width

    def params(self) -> dict[str, Param]:
        """Returns the parameters with Megatron's splits: q, k, v and up by column (whole heads), outputs and tables by row."""
        return dict(self._params)

    @functools.cached_property
    def _params(self) -> dict[str, Param]:
        """The parameters, made once: a deep model has thousands, and a prediction asks for them many times."""
        table = {
            TOKENS: Param(
                (self.vocabulary, self.width), "table", std=0.1, split=0, lookups=self.context, tied=self.tied
            )
        }
        if not self.is_llama:
            table["embedding/positions/table"] = Param((self.context, self.width), "table", std=0.1)
        for block in range(self.layers):
            table |= self._block(f"blocks/{block}")
        table |= self._norm("head/norm")
        if not self.tied:
            table |= linear(LOGITS, self.width, self.vocabulary, "column", bias=False)
        return table

    def _block(self, path: str) -> dict[str, Param]:
        width, attention, bias = self.width, f"{path}/attention", not self.is_llama
        keys, residual = width // self.heads * self.num_key_heads, 1 / math.sqrt(2 * self.layers)
        shared = functools.partial(linear, fan_in=width, split="column", shares_input=True)
        table = self._norm(f"{path}/attention_norm")
        table |= linear(f"{attention}/query", width, width, "column", bias=bias, groups=self.heads)
        table |= shared(f"{attention}/key", fan_out=keys, bias=False, groups=self.num_key_heads)
        table |= shared(f"{attention}/value", fan_out=keys, bias=bias, groups=self.num_key_heads)
        table |= linear(f"{attention}/output", width, width, "row", gain=residual, bias=bias, groups=self.heads)
        table |= self._norm(f"{path}/mlp_norm")
        if self.experts:
            table |= linear(f"{path}/mlp/router", width, self.experts, bias=False)
        layer = functools.partial(linear, bias=bias, stacked=self.experts)
        table |= layer(f"{path}/mlp/up", width, self.hidden, "column")
        if self.is_llama:
            table |= layer(f"{path}/mlp/gate", width, self.hidden, "column", shares_input=True)
        return table | layer(f"{path}/mlp/down", self.hidden, width, "row", residual)

    def _norm(self, path: str) -> dict[str, Param]:
        return norm(path, self.width, bias=not self.is_llama)

    def segments(self) -> tuple[Segment, ...]:
        """Returns the segments: the embedding, each block, and the head."""
        return self._segments

    @functools.cached_property
    def _segments(self) -> tuple[Segment, ...]:
        tokens, width = self.context, self.width
        kernels = sum(param.met(self.top_k) for param in self._block("").values() if param.role == "kernel")
        block = 2 * tokens * kernels + 4 * tokens**2 * width
        return (
            Segment("embedding", tokens * width, (tokens, width)),
            *(Segment(f"blocks/{i}", block, (tokens, width)) for i in range(self.layers)),
            Segment("head", 2 * tokens * width * self.vocabulary, (tokens, self.vocabulary), self._of_tied_head()),
        )

    def _of_tied_head(self) -> tuple[str, ...] | None:
        return (*self._norm("head/norm"), TOKENS) if self.tied else None

    def inputs(self) -> ArraySpec:
        """Returns the shape of a sequence of token ids."""
        return ArraySpec((self.context,), self.vocabulary)

    def targets(self) -> ArraySpec:
        """Returns the shape of the targets: at every position, the next token."""
        return ArraySpec((self.context,), self.vocabulary)

    @functools.cached_property
    def facts(self) -> ModelFacts:
        """The facts about the model that every mirror uses."""
        sizes = BlockSizes(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            key_heads=self.num_key_heads,
            hidden=self.hidden,
            is_gated=self.is_llama,
            context=self.context,
            vocabulary=self.vocabulary,
            routed_experts=self.experts,
            top_k=self.top_k if self.experts else 0,
            expert_hidden=self.hidden,
        )
        return dataclasses.replace(stated(self), sizes=sizes, ignores=self.ignored > 0)

    def fitted(self, sizes: DataSizes) -> Self:
        """Fits the model to sequences: their length becomes the context, and inputs and targets share one vocabulary."""
        if len(sizes.input_shape) != 1:
            raise ConfigError(
                f"the transformer takes token ids [examples, context], not examples of shape {list(sizes.input_shape)}."
            )
        return dataclasses.replace(self, context=sizes.input_shape[0], vocabulary=sizes.outputs)
