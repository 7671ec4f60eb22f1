"""Predictions and advice: layouts, candidates, and how sure they are."""
