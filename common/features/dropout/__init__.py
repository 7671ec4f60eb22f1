"""Dropout: the elements that it keeps are a function of the example, the step and the seed, the same in all mirrors."""
