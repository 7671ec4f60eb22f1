"""Processes that call each other by RPC: the group that they form, and what they serve to their callers."""
