"""A chief that hands updates to workers, whose variables are on server processes."""
