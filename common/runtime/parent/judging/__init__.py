"""What the launcher determines about a run that ended: its reference, its curve, its verdict."""
