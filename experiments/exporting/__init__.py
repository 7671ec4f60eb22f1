"""Runs for trackers of experiments."""
