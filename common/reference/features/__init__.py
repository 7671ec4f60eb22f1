"""The layers that features of a model consist of, and what goes wrong with each."""
