"""What `samestep clean` shares: what takes room on the disk, and what of it may go."""
