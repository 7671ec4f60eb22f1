"""The axes of a mesh, one file each: what an axis refuses, and what it costs alone. `used.py` loops over them."""
