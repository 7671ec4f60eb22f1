"""Changes to the graphs that TensorFlow builds for a recorded script."""
