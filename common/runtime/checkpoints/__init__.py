"""Checkpoints, which a run saves while it trains so another attempt can continue from there: `docs/resuming.md`."""
