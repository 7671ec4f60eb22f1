"""A server process that holds parameters, and workers that pull parameters and push gradients."""
