"""What each layer keeps in TensorFlow 2.21, where a tape needs what the gradient of each primitive operation reads.

Besides what torch keeps (`kept_torch.py`), the layers that are written out in primitive operations keep more:

    GELU          x / 2, x / sqrt(2) and 1 + erf, three times its input, where torch keeps the input alone
    ReLU          its output, which is the same memory as the next layer's input, unless dropout is between them
    dropout       a byte for each element, which says whether it is kept
    batch norm        the normalized input, and a reciprocal deviation for each channel, whatever the number of examples
    layer norm    the centred input, its product with the reciprocal deviation, and that deviation; no mean
    RMS norm      its input, its output before the scale, and the reciprocal root
    gated mlp     as in torch
    attention     q, k, v and its output, the causal mask, and the softmax of all scores, H T a position, as it is not fused;
                  where keys and values are gathered, neither scores nor mask: they are computed again
    experts       what torch keeps, with what an mlp keeps here; ids have four bytes; and how many tokens each expert takes
    pooling       nothing for a mean, which needs a shape only; for a maximum its input, and the larger one of each two rows
    cross-entropy the log-probabilities and the targets, and the weights of targets if some do not count
    binary        exp(-|x|) and the targets as real numbers, and one byte that says where x >= 0
    squared error the difference

In two bytes (`wide` = 2) a product keeps the casts of its factors, and everything else is in float32: two units of two bytes. So
queries, keys and values have an input each, the softmax is kept once more for its product, and the output of a ReLU is not the
memory of an input. Data are kept as they were cast.

A transformer's block keeps 26 D + H T + 2 numbers a position: norms 2 (2 D + 1), inputs of linear layers D + D + D + 4 D, q,
k and v 3 D, the GELU 12 D, the softmax H T.

References:
    tensorflow/python/ops/math_grad.py, nn_grad.py, array_grad.py of TensorFlow 2.21.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from samestep.common.costs.saved_activations.copies import WIDE, add_kernels
from samestep.common.costs.sizes import ID_BYTES, example_bytes
from samestep.common.features.used import balanced_numbers, layers_of, mask_bytes
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, layer
from samestep.common.workload.saved import LOSS, Kept, SavedLists

if TYPE_CHECKING:
    from samestep.common.workload.models.cnn import CnnSpec
    from samestep.common.workload.models.mlp import MlpSpec
    from samestep.common.workload.models.ranker import RankerSpec
    from samestep.common.workload.models.transformer import TransformerSpec

KeptLists = Callable[..., dict[str, Kept]]
"""(model, bytes of a number, `wide`) -> what each segment and the loss keep."""
TENSORS = {"gelu": 3, "relu": 0}
"""The number of tensors that an activation keeps, besides what the next layer keeps."""
PLACE_BYTES = 4
"""The bytes of the number of an expert, of a place among the tokens of experts, and of a count of tokens."""


def _tensors(model: ModelSpec, is_apart: bool) -> int:
    """Returns how many tensors an activation keeps; a ReLU's output counts if the next layer takes another tensor."""
    return TENSORS[model.facts.activation] or int(is_apart)


def mlp(model: "MlpSpec", item_bytes: int, wide: int = 1) -> dict[str, Kept]:
    """Lists the input of each layer (of the first, the batch), and what the activation behind each layer but the last keeps.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
        wide: How many numbers of this size a number takes that is not a factor of a product.
    """
    tensors = wide * _tensors(model, wide > 1 or mask_bytes(model) > 0)
    last, (copy, data) = model.layers - 1, _data(model, item_bytes, wide)
    kept = {
        f"layers/{i}": Kept(
            (model.width if i else copy) + (tensors * model.width if i < last else 0),
            batch_bytes=0 if i else data,
            masks=(mask_bytes(model) * model.width if i < last else 0, 0, 0),
        )
        for i in range(model.layers)
    }
    for path, channels in layers_of(model).items():
        kept[layer(path)] = kept[layer(path)].normalized(wide * channels, wide * channels * item_bytes)
    return kept | {LOSS: _loss(model, wide * model.outputs)}


def cnn(model: "CnnSpec", item_bytes: int, wide: int = 1) -> dict[str, Kept]:
    """Lists for each block what convolution, activation and pooling keep; then the two linear layers.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
        wide: How many numbers of this size a number takes that is not a factor of a product.
    """
    pixels, channels, (copy, data) = math.prod(model.image[:2]), model.filters, _data(model, item_bytes, wide)
    is_read = model.activation == "relu" or model.pooling == "max"  # what is pooled
    halves = wide * (2 * (TENSORS[model.activation] + is_read) + (model.pooling == "max"))  # of a block's tensor
    kept = {
        "blocks/0": Kept(copy + halves * pixels * channels // 2, batch_bytes=data),
        "blocks/1": Kept(pixels // 4 * channels + halves * (pixels // 4) * channels),
        "hidden": Kept(pixels // 16 * 2 * channels + wide * _tensors(model, wide > 1) * model.hidden),
        "output": Kept(model.hidden),
        LOSS: _loss(model, wide * model.outputs),
    }
    for (path, count), positions in zip(layers_of(model).items(), (pixels, pixels // 4), strict=False):
        kept[layer(path)] = kept[layer(path)].normalized(wide * positions * count, wide * count * item_bytes)
    return kept


def ranker(model: "RankerSpec", item_bytes: int, wide: int = 1) -> dict[str, Kept]:
    """Lists what the three linear layers and the two activations keep, and the loss.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
        wide: How many numbers of this size a number takes that is not a factor of a product.
    """
    half, tensors = model.hidden // 2, wide * _tensors(model, wide > 1)
    return {
        "tables": Kept(batch_bytes=example_bytes(model.inputs(), item_bytes)),
        "hidden/0": Kept(len(model.rows()) * model.embedding + tensors * model.hidden),
        "hidden/1": Kept(model.hidden + tensors * half),
        "output": Kept(half),
        LOSS: Kept(2 * wide, batch_bytes=1),
    }


def transformer(model: "TransformerSpec", item_bytes: int, wide: int = 1, gathers: bool = False) -> dict[str, Kept]:
    """Lists what embedding, blocks, head and loss keep.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
        wide: How many numbers of this size a number takes that is not a factor of a product.
        gathers: Whether attention gathers keys and values, and recomputes.
    """
    tokens, width = model.context, model.width
    ids, norm, scores = tokens * ID_BYTES, wide * (2 * width + 1), model.heads * tokens
    inside = _between(model, wide)
    if model.experts:
        inside = model.experts + 1 + model.top_k * (inside + 2 * width + 2)
    # In two bytes, there are several casts of what is one tensor otherwise.
    inputs = 3 * width + ((3 if model.is_llama else 2) * width if wide > 1 else 0)
    mixing = 3 * wide * width if gathers else 3 * width + wide * scores + (scores if wide > 1 else 0)
    a_position = 2 * norm + inputs + mixing + inside
    mask = tokens * width * mask_bytes(model)
    places = 3 * PLACE_BYTES * tokens * model.top_k if model.experts else 0
    fixed = (0 if gathers else tokens**2) + PLACE_BYTES * model.experts
    fixed += 2 * tokens * width // model.heads * wide * item_bytes if model.is_llama else 0  # cosines and sines
    block = Kept(tokens * a_position, fixed_bytes=fixed, masks=(2 * mask + places, 0, 0))
    return {
        "embedding": Kept(batch_bytes=ids, masks=(mask, 0, 0)),
        **{f"blocks/{i}": block for i in range(model.layers)},
        "head": Kept(tokens * (norm + width)),
        LOSS: Kept(
            wide * tokens * model.vocabulary,
            batch_bytes=ids + (wide * tokens * item_bytes if model.ignored else 0),
            fixed_bytes=item_bytes * balanced_numbers(model),
        ),
    }


def _between(model: ModelSpec, wide: int = 1) -> int:
    """Returns how many numbers are kept for each position between the two layers of an mlp."""
    sizes = model.facts.sizes
    return sizes.hidden * (1 + wide * (3 if sizes.is_gated else _tensors(model, wide > 1)))


def at_expert(model: ModelSpec) -> int:
    """Returns how many numbers an expert keeps for each position that takes it: its input, and what its mlp keeps."""
    return _between(model) + model.facts.sizes.width


def _data(model: "MlpSpec | CnnSpec", item_bytes: int, wide: int) -> tuple[int, int]:
    """Returns what is kept of an example's data: the numbers that were cast, or the bytes of the batch."""
    size = example_bytes(model.inputs(), item_bytes)
    return (size // item_bytes, 0) if wide > 1 else (0, size)


def _loss(model: ModelSpec, outputs: int) -> Kept:
    return Kept(outputs, batch_bytes=ID_BYTES if model.loss == "cross_entropy" else 0)


_MODELS = {"mlp": mlp, "cnn": cnn, "ranker": ranker, "transformer": transformer}
_GATHERING = {**_MODELS, "transformer": functools.partial(transformer, gathers=True)}


def mixed(lists: Mapping[str, KeptLists], model: ModelSpec, item_bytes: int) -> dict[str, Kept]:
    """Lists what a model keeps if only the factors of products have two bytes.

    Args:
        lists: Name of a model -> the list of what it keeps without mixed precision.
        model: The spec.
        item_bytes: The bytes of a number, which are two.
    """
    found = lists[model.name](model, item_bytes, wide=WIDE)
    add_kernels(model, found, item_bytes)
    return found


def _lists(models: Mapping[str, KeptLists], is_mixed: bool) -> SavedLists:
    kept = dict.fromkeys(models, functools.partial(mixed, models)) if is_mixed else models
    return SavedLists(kept, in_order=False, keeps_keys=True, units=lambda model, segment: WIDE if is_mixed else 1)


_SAVED = {
    (gathers, is_mixed): _lists(models, is_mixed)
    for gathers, models in ((False, _MODELS), (True, _GATHERING))
    for is_mixed in (False, True)
}


def saved(run: Run, as_it_comes: bool) -> SavedLists:
    """Returns the list of what a run in TensorFlow keeps.

    Args:
        run: What is trained.
        as_it_comes: Not used; no layer in TensorFlow does this.
    """
    return _SAVED[run.asked.gathers_keys, run.product_bytes != run.item_bytes]
