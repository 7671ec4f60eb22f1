"""What each axis of a mesh is to a run, a file an axis: its refusals, and what it costs alone. `used.py` loops over them."""
