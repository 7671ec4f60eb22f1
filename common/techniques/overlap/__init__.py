"""Overlap: whether gradients are exchanged while the backward pass still runs."""
