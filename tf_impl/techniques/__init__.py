"""Techniques that change the model, or how it is computed, whatever the strategy: one file each."""
