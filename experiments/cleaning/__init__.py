"""What `samestep clean` uses: what takes room on the disk, and what of it may be removed."""
