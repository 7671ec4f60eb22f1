"""The optimizers: one file for each, with its hyper-parameters, its state, its update in NumPy and its known mistakes.

In every file g is the gradient of the GLOBAL mean loss, t = 1, 2, ... the step, and every hyper-parameter a float64. A mirror
has the same update in `optimizers/NAME.py`.
"""
