"""Recomputation: a segment keeps its inputs only, and computes the rest once more in the backward pass."""
