"""Follows Keras on PyTorch, whose layers and optimizers are not torch's."""
