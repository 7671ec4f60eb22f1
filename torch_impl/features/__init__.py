"""The features of models in PyTorch, a file a feature; `applied.py` is what everything else meets."""
