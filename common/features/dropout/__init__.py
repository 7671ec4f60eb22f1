"""Dropout: which elements it keeps is a function of the example, the step and the seed, the same in all mirrors."""
