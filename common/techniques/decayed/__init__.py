"""Weight decay of matrices alone: biases and the scales of norms are spared, as most people train."""
