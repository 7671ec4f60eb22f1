"""Models as users bring them, in Keras."""

import numpy as np

import samestep


def images() -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(120, 8, 8, 1)), draw.integers(0, 10, 120)
    return inputs[:96], targets[:96], inputs[96:], targets[96:]


def functional():
    import keras
    from keras import layers

    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    x = layers.Add()([x, layers.Conv2D(4, 3, padding="same", activation="relu")(x)])
    x = layers.Flatten()(layers.MaxPooling2D()(x))
    return keras.Model(inputs, layers.Dense(10)(x))


def subclassed():
    import keras
    from keras import layers

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.flatten, self.hidden = layers.Flatten(), layers.Dense(16, activation="tanh")
            self.norm, self.out = layers.LayerNormalization(), layers.Dense(10)

        def call(self, x):
            return {"logits": self.out(self.norm(self.hidden(self.flatten(x))))}

    return Net()


FUNCTIONAL = samestep.Model(tf=functional)
SUBCLASSED = samestep.Model(tf=subclassed)
