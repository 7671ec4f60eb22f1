"""The oracle, in NumPy float64: the third mirror, against which every other one is judged."""
