"""The output of results for people and programs: tables, text, formats."""
