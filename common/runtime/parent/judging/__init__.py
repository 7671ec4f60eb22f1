"""What the launcher asks about a run that ended: its reference, its curve, its verdict."""
