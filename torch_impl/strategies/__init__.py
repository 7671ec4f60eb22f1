"""The strategies of PyTorch, one per file; each file defines `build`."""
