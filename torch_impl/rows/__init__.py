"""What the rows of the catalogue consist of: options, needs, measures, refusals. Imports no framework."""
