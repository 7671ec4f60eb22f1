"""One process of a run: builds its program, takes the steps, and measures."""
