"""Writes the tables and pictures of the README and of docs/."""
