"""What the rows of the catalogue consist of: options, needs, refusals. Imports no framework."""
