"""The optimizers: a file for each, with its hyper-parameters, its state, its update in NumPy and its known mistakes.

In every file, g is the gradient of the GLOBAL mean loss, t = 1, 2, ... is the step, and every hyper-parameter is a float64. Each
mirror has the same update in `optimizers/NAME.py`.
"""
