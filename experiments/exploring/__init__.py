"""The explorer: a page on which a step of any two strategies is played, side by side."""
