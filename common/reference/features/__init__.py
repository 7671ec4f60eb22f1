"""The layers that make up the features of a model, and the known mistakes of each."""
