"""Keras on PyTorch: its layers and its optimizers, which are not torch's."""
