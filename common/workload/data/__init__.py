"""The data sets: real ones that need no download, synthetic ones of any size, and the user's own arrays."""
