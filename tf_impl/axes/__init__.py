"""What each axis of a mesh does to a model, a file for each axis. Strategies are presets of axes."""
