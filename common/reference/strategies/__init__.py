"""One file for each strategy; here only the oracle."""
