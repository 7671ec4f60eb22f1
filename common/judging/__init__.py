"""Whether two runs took the same step, and which of two is faster."""
