"""The strategies, a file each, with a function `build`."""
