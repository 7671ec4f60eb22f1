"""Fixed order: gradients are added up along one tree over micro-batches, so any number of devices computes the same bits."""
