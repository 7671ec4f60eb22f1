"""Two implementations of one model: what belongs together, and where they first differ."""
