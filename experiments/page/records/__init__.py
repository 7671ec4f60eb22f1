"""The page of `samestep report` on one record, or on two that are compared."""
