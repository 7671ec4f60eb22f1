"""Whether two recorded runs took the same steps, and where they first differ."""
