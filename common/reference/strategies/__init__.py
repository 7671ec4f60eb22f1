"""One file a strategy; here the oracle alone."""
