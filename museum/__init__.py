"""The museum: released packages that were silently wrong, run beside those that were not, and what `samestep diff` says."""
