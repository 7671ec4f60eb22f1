"""WHAT is judged: pure functions of plain values."""
