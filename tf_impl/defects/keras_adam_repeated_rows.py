"""Keras' Adam takes another step for an embedding if an index occurs twice in a batch.

What to do: make the gradient dense before the optimizer sees it: tf.convert_to_tensor(gradient).
"""

import keras
import tensorflow as tf

moved = {}
for form, convert in {"dense": tf.convert_to_tensor, "rows": lambda rows: rows}.items():
    table, adam = keras.Variable(tf.zeros([2, 1])), keras.optimizers.Adam(0.1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table.value, [0, 0, 0, 1]))
    adam.apply([convert(tape.gradient(loss, table.value))], [table])
    moved[form] = -table.numpy()[0, 0]
print(f"row 0, looked up three times, moved by {moved['dense']:.4f} (dense gradient) and {moved['rows']:.4f} (rows)")
assert abs(moved["dense"] - moved["rows"]) < 1e-6, "one gradient makes two different steps"
