"""Compilation of the forward and backward pass, by torch.compile or XLA."""
