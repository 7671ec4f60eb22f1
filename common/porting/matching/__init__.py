"""Finds which layers of two models belong together."""
