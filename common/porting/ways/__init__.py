"""The known ways to compute what a model computes, in NumPy: a cause is a setting in which the ways of the two sides differ."""
