"""Describing users' models, comparing two implementations of one, and converting their weights."""
