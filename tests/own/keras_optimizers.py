"""Optimizers of Keras as users bring them."""

from wild_keras import mlp

import samestep


def of(kind, *given, **more):
    def build():
        import keras

        return getattr(keras.optimizers, kind)(*given, **more)

    return samestep.Model(tf=mlp, optimizer={"tf": build})


def without_decay_of_biases():
    import keras

    made = keras.optimizers.AdamW(2**-6, weight_decay=0.5, use_ema=True, ema_overwrite_frequency=3)
    made.exclude_from_weight_decay(var_names=["bias"])
    return made


def scheduled():
    import keras

    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.125, 4), momentum=0.9, nesterov=True)


AVERAGED = samestep.Model(tf=mlp, optimizer={"tf": without_decay_of_biases})
SCHEDULED = samestep.Model(tf=mlp, optimizer={"tf": scheduled})
CENTERED = of("RMSprop", 2**-8, momentum=0.9, centered=True)
CLIPPED = of("Adam", 2**-6, clipnorm=0.1)
CLIPPED_BY_ALL = of("Adam", 2**-6, global_clipnorm=0.1)
FACTORED = of("Adafactor", 2**-6)
STARTED = of("Adagrad", 2**-6)
NOTHING = samestep.Model(tf=mlp, optimizer={"tf": lambda: None})
TORCH_ALONE = samestep.Model(tf=mlp, optimizer={"torch": lambda params: None})
