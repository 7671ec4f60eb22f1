"""What each layer keeps in TensorFlow 2.21, where a tape needs what the gradient of each primitive operation reads.

Beside what torch keeps (`kept_torch.py`), the layers that are written out in primitive operations keep more:

    GELU          x / 2, x / sqrt(2) and 1 + erf, three times its input, where torch keeps the input alone
    ReLU          its output, which is the same memory as the next layer's input, unless dropout is between them
    dropout       a byte for each element, which says whether it is kept
    batch norm        the normalised input, and a reciprocal deviation for each channel, whatever the number of examples
    layer norm    the centred input, its product with the reciprocal deviation, and that deviation; no mean
    attention     q, k, v and its output, and the softmax of all scores, H T a position: it is not fused; and the causal mask
    pooling       nothing: a mean needs a shape only; a maximum its input, and the larger one of each two rows
    cross-entropy the log-probabilities and the targets, and the weights of targets if some do not count
    binary        exp(-|x|) and the targets as real numbers, and one byte that says where x >= 0
    squared error the difference

A transformer's block keeps 26 D + H T + 2 numbers a position: norms 2 (2 D + 1), inputs of linear layers D + D + D + 4 D, q,
k and v 3 D, the GELU 12 D, the softmax H T.

References:
    tensorflow/python/ops/math_grad.py, nn_grad.py, array_grad.py of TensorFlow 2.21.
"""

import math

from samestep.common.evidence.costs.kept import LOSS, Kept
from samestep.common.evidence.costs.sizes import ID_BYTES, example_bytes
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.spec import ModelSpec, batch_norms, layer
from samestep.common.workload.models.transformer import TransformerSpec

TENSORS = {"gelu": 3, "relu": 0}
"""The tensors that an activation keeps, beside what the next layer keeps."""


def mlp(model: MlpSpec, item_bytes: int) -> dict[str, Kept]:
    """Lists each layer's input, the batch's for the first; and what the activation behind each but the last keeps.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    last, data = model.layers - 1, example_bytes(model.inputs(), item_bytes)
    tensors = TENSORS[model.activation] or int(model.dropout > 0)
    kept = {
        f"layers/{i}": Kept(
            (model.width if i else 0) + (tensors * model.width if i < last else 0),
            batch_bytes=0 if i else data,
            masks=(model.width if model.dropout and i < last else 0, 0, 0),
        )
        for i in range(model.layers)
    }
    for path, channels in batch_norms(model).items():
        kept[layer(path)] = kept[layer(path)].normalized(channels, channels * item_bytes)
    return kept | {LOSS: _loss(model, model.outputs)}


def cnn(model: CnnSpec, item_bytes: int) -> dict[str, Kept]:
    """Lists for each block what convolution, activation and pooling keep; then the two linear layers.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    pixels, channels, tensors = math.prod(model.image[:2]), model.filters, TENSORS[model.activation]
    is_read = model.activation == "relu" or model.pooling == "max"  # what is pooled
    halves = 2 * (tensors + is_read) + (model.pooling == "max")  # of a block's tensor
    kept = {
        "blocks/0": Kept(halves * pixels * channels // 2, batch_bytes=example_bytes(model.inputs(), item_bytes)),
        "blocks/1": Kept(pixels // 4 * channels + halves * (pixels // 4) * channels),
        "hidden": Kept(pixels // 16 * 2 * channels + tensors * model.hidden),
        "output": Kept(model.hidden),
        LOSS: _loss(model, model.outputs),
    }
    for (path, count), positions in zip(batch_norms(model).items(), (pixels, pixels // 4), strict=False):
        kept[layer(path)] = kept[layer(path)].normalized(positions * count, count * item_bytes)
    return kept


def ranker(model: RankerSpec, item_bytes: int) -> dict[str, Kept]:
    """Lists what the three linear layers and the two activations keep, and the loss.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    half, tensors = model.hidden // 2, TENSORS[model.activation]
    return {
        "tables": Kept(batch_bytes=example_bytes(model.inputs(), item_bytes)),
        "hidden/0": Kept(len(model.rows()) * model.embedding + tensors * model.hidden),
        "hidden/1": Kept(model.hidden + tensors * half),
        "output": Kept(half),
        LOSS: Kept(2, batch_bytes=1),
    }


def transformer(model: TransformerSpec, item_bytes: int) -> dict[str, Kept]:
    """Lists what embedding, blocks, head and loss keep.

    Args:
        model: The spec.
        item_bytes: The bytes of a number.
    """
    tokens, width = model.context, model.width
    ids, norm = tokens * ID_BYTES, 2 * width + 1
    a_position = 2 * norm + 10 * width + TENSORS[model.activation] * 4 * width + model.heads * tokens
    mask = tokens * width if model.dropout else 0
    block = Kept(tokens * a_position, fixed_bytes=tokens**2, masks=(2 * mask, 0, 0))  # a mask of one byte an element
    return {
        "embedding": Kept(batch_bytes=ids, masks=(mask, 0, 0)),
        **{f"blocks/{i}": block for i in range(model.layers)},
        "head": Kept(tokens * (norm + width)),
        LOSS: Kept(tokens * model.vocabulary, batch_bytes=ids + (tokens * item_bytes if model.ignored else 0)),
    }


def _loss(model: ModelSpec, outputs: int) -> Kept:
    return Kept(outputs, batch_bytes=ID_BYTES if model.loss == "cross_entropy" else 0)


KEPT = {"mlp": mlp, "cnn": cnn, "ranker": ranker, "transformer": transformer}
