"""Fixed order: gradients are added up by one tree over micro-batches, so any number of devices computes the same bits."""
