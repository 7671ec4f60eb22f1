"""The sizes of a transformer's blocks, dense or with a mixture of experts: all that cost and time models need to know."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """The sizes of the blocks of a model, and of the matrices in them; all are 0 for a model without such blocks.

    Attributes:
        layers: The number of blocks, each with attention and an MLP.
        width: The width of the residual stream (the hidden size).
        heads: The number of query heads.
        key_heads: The number of heads of keys and values.
        hidden: The number of units of the MLP.
        is_gated: Whether the MLP has a third matrix, a gate.
        context: The number of tokens of a sequence.
        vocabulary: The number of rows of the embedding as stored in memory, padded or not.
        head_width: The width of a value head; 0 means the width divided by the number of heads.
        routed_experts: The number of experts of a mixture, which replaces the MLP in every block but the first `dense_layers`; 0
            means no mixture.
        top_k: The number of these experts that a token takes.
        expert_hidden: The number of units of an expert.
        shared_hidden: The number of units of the experts that all tokens take.
        dense_layers: The number of blocks, counted from the first, that have an MLP instead of a mixture.
        query_rank: The width of the latent vector of the queries; 0 if queries are computed from the residual stream.
        key_rank: The width of the latent vector of keys and values; 0 if these are computed from the residual stream.
        rotary_width: The width of the part of a latent query that is rotated by its position.
    """

    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    is_gated: bool
    context: int
    vocabulary: int
    head_width: int = 0
    routed_experts: int = 0
    top_k: int = 0
    expert_hidden: int = 0
    shared_hidden: int = 0
    dense_layers: int = 0
    query_rank: int = 0
    key_rank: int = 0
    rotary_width: int = 0

    @property
    def of_head(self) -> int:
        """The width of a value head."""
        return self.head_width or self.width // self.heads

    @property
    def values(self) -> int:
        """The total width of all heads that attention returns."""
        return self.heads * self.of_head

    @property
    def key_width(self) -> int:
        """The total width of the keys, and of the values."""
        return self.of_head * (self.heads if self.key_rank else self.key_heads)

    @property
    def score_width(self) -> float:
        """The width of a head, averaged over the product that computes the scores and the one that uses them."""
        return self.of_head + self.rotary_width / 2

    def up_of(self, hidden: int) -> int:
        """Returns the number of outputs of the first layer of an MLP with a given number of hidden units."""
        return (2 if self.is_gated else 1) * hidden

    def attention_products(self, tensor: int) -> tuple[tuple[float, float], ...]:
        """Returns the inputs and outputs of attention's products with weights, on one of the GPUs that share each matrix.

        Args:
            tensor: The number of GPUs that share each matrix; matrices that lead into latent vectors are whole on each GPU.
        """
        last = (self.values / tensor, self.width)
        if not self.key_rank:
            return (self.width, (self.values + 2 * self.key_width) / tensor), last
        queries = self.values + self.heads * self.rotary_width
        return (
            (self.width, self.query_rank + self.key_rank + self.rotary_width),
            (self.query_rank, queries / tensor),
            (self.key_rank, 2 * self.key_width / tensor),
            last,
        )

    @property
    def attention_params(self) -> int:
        """The number of elements in the matrices of an attention layer."""
        return round(sum(inputs * outputs for inputs, outputs in self.attention_products(1)))

    @property
    def block_params(self) -> int:
        """The number of elements in the matrices of a block with an MLP."""
        return self.attention_params + self.mlp_params(self.hidden)

    @property
    def mixture_params(self) -> int:
        """The number of elements in the matrices of a block with a mixture, without those of the routed experts."""
        return self.attention_params + self.width * self.routed_experts + self.mlp_params(self.shared_hidden)

    @property
    def expert_params(self) -> int:
        """The number of elements in the matrices of all routed experts of a block."""
        return self.routed_experts * self.mlp_params(self.expert_hidden)

    def mlp_params(self, hidden: int) -> int:
        """Returns the number of elements in the matrices of an MLP with a given number of hidden units."""
        return self.width * (self.up_of(hidden) + hidden)

    def num_mixtures(self, layers: int, pipe: int) -> int:
        """Returns the number of blocks with a mixture in the slowest stage: all of them, if some stage has no dense block.

        Args:
            layers: The number of blocks in the stage.
            pipe: The number of stages.
        """
        if not self.routed_experts:
            return 0
        return layers if pipe > 1 else layers - self.dense_layers


NO_BLOCKS = BlockSizes(0, 0, 0, 0, 0, False, 0, 0)
"""The sizes of a model without blocks of attention and an MLP."""
