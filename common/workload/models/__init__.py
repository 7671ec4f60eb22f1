"""The models as shapes, without arithmetic: parameters, initial values, split table, segments, FLOPs."""
