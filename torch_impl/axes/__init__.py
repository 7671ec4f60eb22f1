"""What each axis of a mesh does to a model, one file per axis. Strategies are presets of axes."""
