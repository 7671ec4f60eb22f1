"""tf.nn.gelu of float64 numbers has the accuracy of float32: its constants are rounded.

What to do: write it out with Python's numbers: 0.5 * x * (1 + tf.math.erf(x * (1 / math.sqrt(2)))).
"""

import math

import tensorflow as tf

got = float(tf.nn.gelu(tf.constant(1.0, tf.float64)))
exact = 0.5 * (1 + math.erf(1 / math.sqrt(2)))
print(f"gelu(1): {got:.16f}; exact: {exact:.16f}; apart: {abs(got - exact):.0e}")
assert abs(got - exact) < 1e-15, "a float64 number has the digits of float32"
