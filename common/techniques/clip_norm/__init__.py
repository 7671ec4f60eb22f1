"""Clipping: the gradient of the whole batch is scaled down to a largest norm."""
