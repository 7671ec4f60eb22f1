"""One file a strategy, each with `build`."""
