"""What a quantity is, and those that come in a family."""
