"""tensorflow#120988: a residual network, whose steps are compiled by XLA or not.

python -m museum.settled.compiled adam | sgd [accumulate] [xla]
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

STEPS, BATCH, SIZE = 10, 8, 16

keras.utils.set_random_seed(42)


def network() -> keras.Model:
    """A residual network of three blocks, for ten classes."""
    inputs = keras.Input((SIZE, SIZE, 3))
    seen = keras.layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    for width in (16, 32, 64):
        own = keras.layers.Conv2D(width, 3, 2, padding="same", use_bias=False)(seen)
        own = keras.layers.ReLU()(keras.layers.BatchNormalization()(own))
        own = keras.layers.BatchNormalization()(keras.layers.Conv2D(width, 3, padding="same", use_bias=False)(own))
        past = keras.layers.Conv2D(width, 1, 2, use_bias=False)(seen)
        seen = keras.layers.ReLU()(keras.layers.add([own, past]))
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(seen)))


made = network()
passes = 4 if "accumulate" in sys.argv else None
kinds = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}
(kind,) = (kinds[name] for name in kinds if name in sys.argv)
optimizer = kind(0.01 if kind is kinds["adam"] else 0.1, gradient_accumulation_steps=passes)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
made.compile(optimizer, loss, jit_compile="xla" in sys.argv)
count = STEPS * BATCH * (passes or 1)
generator = np.random.default_rng(42)
images, labels = generator.normal(size=(count, SIZE, SIZE, 3)).astype(np.float32), generator.integers(0, 10, count)
made.fit(tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH), verbose=0)
