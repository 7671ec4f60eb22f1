"""Prints the most numbers of one tensor that what looks after an update is given: keras_released.py OUT LARGE."""

import sys

import keras
import numpy as np
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

import samestep
from samestep.tf_impl.recording import statistics

statistics._LARGE = int(sys.argv[2])
keras.utils.set_random_seed(0)
inputs = keras.Input((300,))
made = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(300, activation="gelu")(inputs)))
made.compile(keras.optimizers.AdamW(0.001), "mse", jit_compile=False)
made.optimizer.build(made.trainable_variables)  # or the step is traced twice
drawn = np.random.default_rng(0).normal(size=(4, 301)).astype("float32")
with samestep.record(sys.argv[1], every=4):
    made.fit(drawn[:, :300], drawn[:, 300:], batch_size=4, epochs=14, verbose=0)
held = [each.cell_contents for each in made.train_function.__closure__]
(trace,) = next(each for each in held if isinstance(each, Function))._function_cache.values()
bodies = [trace.graph, *(each.graph for each in trace.graph._functions.values() if hasattr(each, "graph"))]
sizes = [
    each.shape.num_elements() or 0
    for body in bodies
    for operation in body.get_operations()
    if operation.type == "If" and not operation.get_attr("_lower_using_switch_merge")
    for each in operation.inputs
    if each.dtype.is_floating
]
print(max(sizes))
