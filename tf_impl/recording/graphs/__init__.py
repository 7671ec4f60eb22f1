"""What becomes of the graphs that a recorded script has TensorFlow build."""
