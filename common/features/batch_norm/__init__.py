"""Batch normalization: its statistics are those of the examples that are computed together, so the step depends on which are."""
