"""What each axis of a mesh does to a model: first `pipe`, then `tensor`, `context`, and `shard` or `data`."""
