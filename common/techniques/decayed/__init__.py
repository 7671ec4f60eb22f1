"""Weight decay of matrices alone: biases and the scales of norms do not decay, as in most training."""
