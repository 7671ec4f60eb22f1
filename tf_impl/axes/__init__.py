"""What each axis of a mesh does to a model: first `pipe`, then `tensor`, then `shard` or `data`. Strategies are presets."""
