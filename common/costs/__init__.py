"""Bytes and memory by arithmetic, a file per family of strategies."""
