"""The step log: one record of a run's steps, from which everything is judged."""
