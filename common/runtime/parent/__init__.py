"""The parent: starts a run's processes, watches them, and makes a result from what they leave."""
