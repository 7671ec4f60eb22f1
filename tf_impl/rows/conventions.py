"""The conventions of TensorFlow and Keras. Imports no framework."""

from samestep.common.frameworks import Conventions

CONVENTIONS = Conventions(
    name="TensorFlow",
    modules=("tensorflow", "keras"),
    followed="keras",
    steps="fit(), an optimizer's apply(), and variables that have changed after GradientTape.gradient()",
    formats=("tf",),
    holds_complex="one variable each, with tf.complex(real, imaginary) in the forward pass",
    not_trained="make it with trainable=False",
    other_dtypes="{counted}, and not {dtype}; make variables without dtype=, which then follow --dtype",
    why_wide="only layers of Keras do",
    weights_suffix=".weights.h5",
    read_suffixes=(".weights.h5", ".safetensors"),
    casts_parameters=False,
    agrees_on_gradients=False,
    norm_sums={"forward": 3, "backward": 2},
    has_equal_parts=True,
    packed_bytes=4,  # an int32 (2.21)
    sums_norms_at_once=True,
)
