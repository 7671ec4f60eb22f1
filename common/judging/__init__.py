"""Judges whether two runs took the same steps, and which of two runs is faster."""
