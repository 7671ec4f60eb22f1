"""The TensorFlow mirror."""
