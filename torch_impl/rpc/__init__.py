"""Processes that call each other: the group they form, and what they serve to their callers."""
