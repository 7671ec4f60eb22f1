"""The time of a step on machines that need not be here: the model, and what it is fitted to and held against."""
