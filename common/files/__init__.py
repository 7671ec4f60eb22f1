"""Files: one door to read them, one to write them, and the list of what is ours."""
