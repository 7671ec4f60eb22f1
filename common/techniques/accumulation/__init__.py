"""Accumulation: each shard of a batch is taken in several micro-batches, whose gradients are added up."""
