"""A server process that holds parameters, and workers that pull and push."""
