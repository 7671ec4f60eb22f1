"""One training step, under every distribution strategy of PyTorch and TensorFlow, proven to be the same step."""
