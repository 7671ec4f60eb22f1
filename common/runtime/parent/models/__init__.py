"""What the launcher finds out about a user's model before it trains."""
