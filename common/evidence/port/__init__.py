"""Two implementations of one model, held against each other layer by layer."""
