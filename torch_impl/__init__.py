"""The PyTorch mirror."""
