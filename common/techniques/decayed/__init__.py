"""Weight decay of matrices only: biases and the scales of norms do not decay, as in most training."""
