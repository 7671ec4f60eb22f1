"""WHAT is trained: models, data, optimizers and the table that bundles them. Plain numbers, no arithmetic."""
