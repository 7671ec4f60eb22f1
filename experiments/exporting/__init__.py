"""Exports runs to experiment trackers, and states to files."""
