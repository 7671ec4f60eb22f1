"""The sizes of a transformer's blocks, dense or with a mixture of experts: all that costs and time models ask of one."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """The sizes of the blocks of a model, and of the matrices in them; all 0 for a model that has no such blocks.

    Attributes:
        layers: The number of blocks of attention and an mlp.
        width: The width of the residual stream (the hidden size).
        heads: The number of heads of the queries.
        key_heads: The number of heads of keys and values.
        hidden: The number of units of the mlp.
        is_gated: Whether the mlp has a third matrix.
        context: The number of tokens of a sequence.
        vocabulary: The number of rows of the embedding as they are in memory, padded or not.
        head_width: The width of a head of values; 0 means the width over the heads.
        routed_experts: The number of experts of a mixture, which replaces the mlp in every block but the first `dense_layers`; 0
            for none.
        top_k: How many of these experts a token takes.
        expert_hidden: The number of units of an expert.
        shared_hidden: The number of units of the experts that all tokens take.
        dense_layers: The number of first blocks that have an mlp.
        query_rank: The width of the vector from which latent queries are computed; 0 if queries are computed from the stream.
        key_rank: The same for keys and values.
        rotary_width: The part of a latent query that is rotated by its position.
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
        """The width of a head of values."""
        return self.head_width or self.width // self.heads

    @property
    def values(self) -> int:
        """The width of all heads that attention returns."""
        return self.heads * self.of_head

    @property
    def key_width(self) -> int:
        """The width of keys, and of values."""
        return self.of_head * (self.heads if self.key_rank else self.key_heads)

    @property
    def score_width(self) -> float:
        """The width of a head, as the mean over the product that computes scores and the one that uses them."""
        return self.of_head + self.rotary_width / 2

    def up_of(self, hidden: int) -> int:
        """Returns the number of outputs of the first layer of an mlp with a number of hidden units."""
        return (2 if self.is_gated else 1) * hidden

    def attention_products(self, tensor: int) -> tuple[tuple[float, float], ...]:
        """Returns the inputs and outputs of attention's products with weights, on one of the GPUs that share each matrix.

        Args:
            tensor: The number of GPUs that share each matrix; those that lead into latent vectors are whole on each.
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
        """The elements of the matrices of an attention."""
        return round(sum(inputs * outputs for inputs, outputs in self.attention_products(1)))

    @property
    def block_params(self) -> int:
        """The elements of the matrices of a block with an mlp."""
        return self.attention_params + self.mlp_params(self.hidden)

    @property
    def mixture_params(self) -> int:
        """The elements of the matrices of a block with a mixture that are not those of its experts."""
        return self.attention_params + self.width * self.routed_experts + self.mlp_params(self.shared_hidden)

    @property
    def expert_params(self) -> int:
        """The elements of the matrices of all experts of a block."""
        return self.routed_experts * self.mlp_params(self.expert_hidden)

    def mlp_params(self, hidden: int) -> int:
        """Returns the elements of the matrices of an mlp with a number of hidden units."""
        return self.width * (self.up_of(hidden) + hidden)

    def num_mixtures(self, layers: int, pipe: int) -> int:
        """Returns how many blocks of the slowest stage have a mixture: all of them, if some stage has no dense block.

        Args:
            layers: The blocks of the stage.
            pipe: The number of stages.
        """
        if not self.routed_experts:
            return 0
        return layers if pipe > 1 else layers - self.dense_layers


NO_BLOCKS = BlockSizes(0, 0, 0, 0, 0, False, 0, 0)
"""Those of a model without blocks of attention and an mlp."""
