"""Batch normalisation: its statistics are taken of examples that meet, so what is learned depends on which do."""
