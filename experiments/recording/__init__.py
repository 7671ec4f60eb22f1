"""What `samestep record` and `samestep diff` share: running and recording commands, and what one record alone proves."""
