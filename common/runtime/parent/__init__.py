"""The parent: starts a run's processes, watches them, and makes a result of what they leave."""
