"""The oracle, in NumPy float64: the third mirror, against which the other two are judged."""
