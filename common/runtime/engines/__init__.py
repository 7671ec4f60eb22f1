"""Engines that start the processes of a run: how a process finds its place, and how the processes meet."""
