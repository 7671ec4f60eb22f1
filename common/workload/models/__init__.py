"""The models as shapes: parameters, initial values, split table, cuts, FLOPs. No arithmetic."""
