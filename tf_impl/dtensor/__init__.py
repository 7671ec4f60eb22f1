"""One program over full tensors, which TensorFlow shards by their layouts."""
