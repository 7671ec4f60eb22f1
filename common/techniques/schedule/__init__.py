"""The schedule of the learning rate: a warm-up, and a decay."""
