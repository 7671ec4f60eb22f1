"""What is kept of one step beside the sums of its tensors: examples, targets, losses, scalars, counts and stray gradients."""
