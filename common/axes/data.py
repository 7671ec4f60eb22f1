"""The axis `data`: every device has the whole model, or the same part of it, and takes different examples.

Gradients are all-reduced once a step.

References:
    Narayanan et al., arXiv 2104.04473, section 3.2.
"""

from samestep.common.axes.axis import AxisHooks, Term

# The bytes of a ring that adds up all gradients.
HOOKS = AxisHooks(textbook=lambda run: Term("2 (d - 1) w Ψ", lambda run, sizes: 2 * (run.mesh.data - 1) * sizes.params))
