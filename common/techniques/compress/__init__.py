"""Compression: gradients are exchanged in fewer bytes."""
