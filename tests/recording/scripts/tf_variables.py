"""Plain TensorFlow: a module with variables of its own, no layer of Keras and no optimizer; eager, or in a "graph"."""

import sys

import tensorflow as tf

tf.random.set_seed(0)
inputs = tf.random.normal([4, 16, 3])
targets = inputs @ tf.constant([[1.0], [2.0], [3.0]])


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.random.normal([3, 1]), name="w")
        self.b = tf.Variable(0.5, name="b")
        self.count = tf.Variable(0, trainable=False)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return x @ self.w + self.b


def step(x: tf.Tensor, y: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    for variable, gradient in zip((model.b, model.w), tape.gradient(loss, (model.b, model.w)), strict=True):
        variable.assign_sub(0.1 * gradient)


model = Model()
train = tf.function(step) if "graph" in sys.argv else step
for x, y in zip(inputs, targets, strict=True):
    train(x, y)
