"""The page of a report: HTML in one file, with a module for each section."""
