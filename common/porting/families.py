"""What a layer is, whatever its framework calls it."""

from samestep.common.features.used import FEATURES

FAMILIES = {
    "linear": ("Linear", "NonDynamicallyQuantizableLinear", "Dense", "EinsumDense"),
    "convolution": (
        *(f"Conv{n}{d}" for n in (1, 2, 3) for d in ("d", "D")),
        *(f"ConvTranspose{n}d" for n in (1, 2, 3)),
        *(f"Conv{n}DTranspose" for n in (1, 2, 3)),
        *("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"),
    ),
    "normalisation": (
        *("LayerNorm", "LayerNormalization", "layer_norm", "GroupNorm", "GroupNormalization"),
        *("RMSNorm", "RMSNormalization"),
    ),
    "activation": (
        *("ReLU", "relu", "GELU", "gelu", "SiLU", "silu", "swish", "Tanh", "tanh", "Sigmoid", "sigmoid"),
        *("Softmax", "softmax", "LeakyReLU", "leaky_relu", "ELU", "elu", "Softplus", "softplus", "ReLU6", "relu6"),
        *("Mish", "mish", "Hardswish", "hard_swish", "SELU", "selu", "PReLU"),
    ),
    "pooling": tuple(
        name
        for n in (1, 2, 3)
        for name in (
            *(f"MaxPool{n}d", f"MaxPooling{n}D", f"max_pool{n}d", f"AvgPool{n}d", f"AveragePooling{n}D"),
            *(f"avg_pool{n}d", f"AdaptiveAvgPool{n}d", f"GlobalAveragePooling{n}D", f"AdaptiveMaxPool{n}d"),
            f"GlobalMaxPooling{n}D",
        )
    ),
    "embedding": ("Embedding",),
    "attention": ("MultiheadAttention", "MultiHeadAttention", "GroupQueryAttention", "attention"),
    "recurrent": ("LSTM", "GRU", "RNN", "SimpleRNN", "Bidirectional"),
    "flatten": ("Flatten", "flatten", "Reshape"),
    "resizing": ("Upsample", "interpolate", *(f"UpSampling{n}D" for n in (1, 2, 3)), "Resizing"),
}
OTHER = "other"
WITH_PARAMETERS = ("linear", "convolution", "embedding", "recurrent", OTHER)
"""Families whose layers are told by the parameters that they hold; of all others, which may hold none, only their order tells."""
SPATIAL = ("convolution", "pooling", "resizing")
"""Families whose arrays have their channels second in torch and last in Keras."""
_BY_KIND = {
    kind: family
    for families in (FAMILIES, *(feature.classes for feature in FEATURES))
    for family, kinds in families.items()
    for kind in kinds
}


def family_of(kind: str) -> str:
    """Returns the family of a class of layers or of a function; "other" is what the user wrote."""
    return _BY_KIND.get(kind, OTHER)
