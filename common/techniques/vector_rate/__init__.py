"""Another learning rate for vectors: biases and the scales of norms."""
