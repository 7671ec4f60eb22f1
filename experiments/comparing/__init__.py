"""A comparison: its request, the order of its runs, what it keeps, and what it concludes."""
