"""Recomputation: a segment keeps only its inputs, and recomputes the rest in the backward pass."""
