"""The features of models in TensorFlow, a file a feature; `applied.py` is what everything else meets."""
