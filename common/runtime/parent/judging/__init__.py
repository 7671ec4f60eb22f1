"""Judging a run that has ended: its reference, the reference's curve, and the verdict."""
