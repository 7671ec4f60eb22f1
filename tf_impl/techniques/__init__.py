"""Techniques that change the model, or how it is computed, under any strategy: one file each."""
