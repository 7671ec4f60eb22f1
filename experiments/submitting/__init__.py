"""Submits a run to an engine: the script or manifest that starts it there, and the job that follows it."""
