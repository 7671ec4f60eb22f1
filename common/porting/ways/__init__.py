"""The known ways to compute what a model computes, in NumPy: a cause is the setting in which the two sides go different ways."""
