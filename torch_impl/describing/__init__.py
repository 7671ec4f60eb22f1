"""Finds out, once for all workers, what a run needs to know about a user model."""
