"""The features of models in PyTorch, one file per feature; all other code uses `applied.py`."""
