"""Engines that start the processes of a run: what each tells a process, and how a run is submitted to it."""
