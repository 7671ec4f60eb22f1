"""Imports TensorFlow without Keras and jax, which it would import (2.21), in less than half the time and memory.

Nothing here uses them. `tf.keras` still loads Keras if a user's model uses it, and jax can be imported later.
"""

import importlib
import os
import sys

_LEGACY = "TF_USE_LEGACY_KERAS"
"""The variable that names the Keras to import. The legacy one is not installed, and TensorFlow continues without any."""

chosen = os.environ.get(_LEGACY, "")
os.environ[_LEGACY] = "1"
sys.modules["jax"] = None  # type: ignore[assignment]  (as Python itself marks a module that cannot be imported)
importlib.import_module("tensorflow")
del sys.modules["jax"]
os.environ[_LEGACY] = chosen
