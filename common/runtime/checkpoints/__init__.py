"""What a run saves while it trains, so that another attempt goes on from there: `docs/resuming.md`."""
