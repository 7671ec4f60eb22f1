"""Judges whether two recorded runs took the same steps, and finds where they first differ."""
