"""What `samestep record` and `samestep diff` share: recorded commands, and what one record alone proves."""
