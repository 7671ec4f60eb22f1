"""Handing a run to an engine: the script or manifest that starts it there, and following what becomes of it."""
