"""A separate learning rate for vectors, i.e. biases and the scales of norms."""
