"""The contents of the catalogue's rows: options, needs, measures, refusals. Imports no framework."""
