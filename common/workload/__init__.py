"""WHAT is trained: models, data, optimizers and the table that combines them. Plain numbers, no arithmetic."""
