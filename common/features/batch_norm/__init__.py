"""Batch normalization: its statistics come from the examples that are computed together, so the step depends on which are."""
