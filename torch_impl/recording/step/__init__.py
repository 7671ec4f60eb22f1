"""What is kept of a step in addition to its tensors: examples, targets, losses, scalars, counts and stray gradients."""
