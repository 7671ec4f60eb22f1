"""What each layer keeps in torch 2.13, where autograd saves what an operation's own gradient needs.

Each piece of memory counts once, however many operations keep it, and parameters count elsewhere:

    linear            its input: the gradient of its kernel
    convolution       its input
    GELU              its input, not its output, which the next layer keeps as its own input
    ReLU              its output, which is the same memory as the next layer's input, unless dropout is between them
    average pooling   its input
    max pooling       its input, and eight bytes for each maximum, which say where it was
    dropout           a byte for each element, which says whether it is kept
    layer norm        its input, and a mean and a reciprocal deviation for each position
    RMS norm          its input, its output before the scale, and a reciprocal root for each position
    batch norm        its input, and a mean and a reciprocal deviation for each channel, whatever the number of examples;
                      where it is frozen its input alone
    attention         q, k, v, its output, and for each head and position the log of the sum of its softmax; never the scores
    experts           the router's probabilities and their sum; for each expert that a position takes: its input and output, what
                      an mlp keeps, the probability, the weight, and three ids of eight bytes
    rotary positions  a cosine and a sine for each position and element of a head, once for queries and keys
    gated mlp         for each hidden unit: the gate, the output of its activation, the other factor, and the product
    embedding         the ids
    cross-entropy     the log-probabilities, the targets, and the sum of the weights of the classes, one number
    squared error     the outputs and the targets

A transformer's block keeps 16 D + H + 4 numbers a position: norms 2 (D + 2), inputs of linear layers D + D + D + 4 D, q, k
and v 3 D, input of the GELU 4 D, sums H; the output of the attention is the input of a linear layer.

Along `tensor`, what lies between a layer split by column and the one split by row behind it is in parts.

References:
    tools/autograd/derivatives.yaml of torch 2.13; Dao et al., arXiv 2205.14135 (the fused attention).
"""

import math
from typing import TYPE_CHECKING

from samestep.common.costs.sizes import ID_BYTES, example_bytes
from samestep.common.features.used import balanced_numbers, layers_of, mask_bytes
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.saved import AHEAD, BEHIND, LOSS, Kept, KeptBySegment, SavedLists

if TYPE_CHECKING:
    from samestep.common.workload.models.cnn import CnnSpec
    from samestep.common.workload.models.decoder import DecoderSpec
    from samestep.common.workload.models.mlp import MlpSpec
    from samestep.common.workload.models.ranker import RankerSpec
    from samestep.common.workload.models.transformer import TransformerSpec


def mlp(model: "MlpSpec", item_bytes: int) -> dict[str, Kept]:
    """Lists the input of each layer (of the first, the batch), and what the activation behind each layer but the last keeps.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    kept, last, norms = {}, model.layers - 1, layers_of(model)
    for i in range(model.layers):
        entering, leaving = (model.width if i else 0), (model.width if i < last else 0)
        data = 0 if i else example_bytes(model.inputs(), item_bytes)
        by_row, read = i % 2 == 1, AHEAD if i and model.activation == "relu" and not mask_bytes(model) else ""
        kept[f"layers/{i}{read}"] = Kept(parts=entering) if by_row else Kept(entering, batch_bytes=data)
        if channels := norms.get(f"layers/{i}/norm"):
            kept[f"layers/{i}"] = kept.get(f"layers/{i}", Kept()).normalized(
                channels, statistics_bytes=2 * channels * item_bytes
            )
        masks = leaving * mask_bytes(model)
        whole, parts = Kept(leaving, masks=(masks, 0, 0)), Kept(parts=leaving, masks=(0, masks, 0))
        kept[f"layers/{i}{BEHIND}"] = whole if by_row else parts
    return kept | {LOSS: _loss(model, item_bytes, model.outputs)}


def cnn(model: "CnnSpec", item_bytes: int) -> dict[str, Kept]:
    """Lists for each block what convolution, activation and pooling keep; then the two linear layers.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    pixels, channels, is_relu = math.prod(model.image[:2]), model.filters, model.activation == "relu"
    sizes = (pixels * channels, pixels // 4 * 2 * channels)
    places = [size // 4 * ID_BYTES // item_bytes if model.pooling == "max" else 0 for size in sizes]
    blocks = [Kept(batch_bytes=example_bytes(model.inputs(), item_bytes)), Kept(pixels // 4 * channels)]
    if model.norm == "batch":
        each = zip(blocks, sizes, (channels, 2 * channels), strict=True)
        blocks = [block.normalized(size, statistics_bytes=2 * count * item_bytes) for block, size, count in each]
    return {
        "blocks/0": blocks[0],
        f"blocks/0{BEHIND}": Kept((1 if is_relu else 2) * sizes[0] + places[0]),
        "blocks/1": blocks[1],
        f"blocks/1{BEHIND}": Kept((1 if is_relu else 2) * sizes[1] + places[1]),
        "hidden": Kept(pixels // 16 * 2 * channels),
        f"hidden{BEHIND}": Kept(parts=model.hidden),
        f"output{AHEAD if is_relu else ''}": Kept(parts=model.hidden),
        LOSS: _loss(model, item_bytes, model.outputs),
    }


def ranker(model: "RankerSpec", item_bytes: int) -> dict[str, Kept]:
    """Lists what the three linear layers and the two activations keep; the loss keeps logits, and targets as real numbers.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    read = AHEAD if model.activation == "relu" else ""
    return {
        "tables": Kept(batch_bytes=example_bytes(model.inputs(), item_bytes)),
        "hidden/0": Kept(len(model.rows()) * model.embedding),
        f"hidden/0{BEHIND}": Kept(parts=model.hidden),
        f"hidden/1{read}": Kept(parts=model.hidden),
        f"hidden/1{BEHIND}": Kept(model.hidden // 2),
        f"output{read}": Kept(model.hidden // 2),
        LOSS: Kept(2),
    }


def transformer(model: "TransformerSpec", item_bytes: int) -> dict[str, Kept]:
    """Lists what a block keeps a position: 2 D for the inputs of its pairs, 2 (D + 2) for norms, 12 D + H inside the pairs.

    In the style of LLaMA, norms keep 2 (2 D + 1), and the mlp keeps four numbers for each hidden unit.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    tokens, width, is_llama = model.context, model.width, model.is_llama
    ids, norm = tokens * ID_BYTES, 2 * width + 1 if is_llama else width + 2
    whole, inside = (_mixture(model, item_bytes), model.top_k) if model.experts else (0, 1)
    inside = 4 * width + model.heads + inside * _between(model)
    mask = tokens * width * mask_bytes(model)
    angles = 2 * tokens * width // model.heads * item_bytes if is_llama else 0
    block = Kept(
        tokens * (2 * width + whole), tokens * inside, 2 * tokens * norm, fixed_bytes=angles, masks=(0, 0, 2 * mask)
    )
    learned = 0 if is_llama else ids  # positions are looked up by number
    return {
        "embedding": Kept(batch_bytes=ids, fixed_bytes=learned, masks=(mask, 0, 0)),
        **{f"blocks/{i}": block for i in range(model.layers)},
        "head": Kept(tokens * width, sequence=tokens * norm),
        LOSS: Kept(
            parts=tokens * model.vocabulary, batch_bytes=ids, fixed_bytes=item_bytes * (1 + balanced_numbers(model))
        ),
    }


def _between(model: ModelSpec) -> int:
    """Returns how many numbers are kept for each position between the two layers of an mlp."""
    sizes = model.facts.sizes
    return (4 if sizes.is_gated else 1 if model.facts.activation == "relu" else 2) * sizes.hidden


def at_expert(model: ModelSpec) -> int:
    """Returns how many numbers an expert keeps for each position that takes it: its input, and what its mlp keeps."""
    return _between(model) + model.facts.sizes.width


def _mixture(model: "TransformerSpec", item_bytes: int) -> int:
    """Returns how many numbers a mixture of experts keeps for each position, besides those between the layers of its experts.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    ids = 3 * ID_BYTES // item_bytes  # which experts it takes, and its place among their tokens, there and back
    return model.experts + 1 + model.top_k * (2 * model.width + 2 + ids)


def decoder(model: "DecoderSpec", item_bytes: int) -> dict[str, Kept]:
    """Lists what a published model would keep, from the operations that its paper names; this has never been measured.

    A gated mlp keeps the input and the output of its gate's activation, the other factor, and the product. An RMS norm has no
    mean. Rotated queries and keys are kept in place of the unrotated ones. A mixture of experts keeps what that of our
    transformer does. Latent vectors are kept whole.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    tokens, width, is_gated = model.context, model.width, model.style == "llama"
    ids, norm = tokens * ID_BYTES, width + (1 if is_gated else 2)
    queries, values, keys = (
        model.heads * (model.of_head + model.rotary_width),
        model.heads * model.of_head,
        (model.heads if model.key_rank else model.key_heads) * model.of_head,
    )
    latent = model.query_rank + model.key_rank + model.rotary_width
    factor = 4 if is_gated else 2
    inside = queries + values + 2 * keys + model.heads
    copies = model.routed_experts + 1 + model.top_k * (2 * width + 2 + 3 * ID_BYTES // item_bytes)
    mixture = factor * (model.top_k + model.shared_experts) * model.expert_hidden

    def block(mlp: int, whole: int) -> Kept:
        stream = 2 * width + latent + whole
        return Kept(tokens * stream, parts=tokens * (inside + mlp), sequence=tokens * 2 * norm)

    blocks = [
        block(factor * model.hidden, 0) if number < model.first_mixture else block(mixture, copies)
        for number in range(model.layers)
    ]
    return {
        "embedding": Kept(batch_bytes=ids, fixed_bytes=0 if is_gated else ids),
        **{f"blocks/{number}": each for number, each in enumerate(blocks)},
        "head": Kept(tokens * width, sequence=tokens * norm),
        LOSS: Kept(parts=tokens * model.vocabulary, batch_bytes=ids, fixed_bytes=item_bytes),
    }


def _loss(model: ModelSpec, item_bytes: int, outputs: int) -> Kept:
    targets = example_bytes(model.targets(), item_bytes)
    return Kept(outputs, batch_bytes=targets, fixed_bytes=item_bytes if model.loss == "cross_entropy" else 0)


TRAINED = ("mlp", "cnn", "ranker", "transformer")
KEPT = dict[str, KeptBySegment](mlp=mlp, cnn=cnn, ranker=ranker, transformer=transformer, decoder=decoder)
LISTS = SavedLists(KEPT, in_order=True)


def saved(run: Run, as_it_comes: bool) -> SavedLists:
    """Returns the list of what a run in torch keeps.

    Args:
        run: What is trained.
        as_it_comes: Whether linear layers keep their inputs uncast.
    """
    if run.product_bytes == run.item_bytes:
        return LISTS
    from samestep.common.costs.saved_activations.kept_torch_mixed import saved_mixed  # here: it is made of these lists

    return saved_mixed(run, as_it_comes)
