"""The page of `samestep report` on records: one, or two that are held against each other."""
