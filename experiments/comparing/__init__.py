"""A comparison: what is asked, in which order it runs, what is kept, and what it concludes."""
