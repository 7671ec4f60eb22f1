"""What writes the tables and pictures of the README and docs."""
