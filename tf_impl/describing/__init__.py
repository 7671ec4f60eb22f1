"""What a worker finds out about a user's model."""
