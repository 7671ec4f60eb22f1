"""The time of a step on machines that need not be present: the model, and what it is fitted to and compared with."""
