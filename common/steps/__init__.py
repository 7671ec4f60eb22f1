"""The step log: the steps of a run, in one record by which everything is judged."""
