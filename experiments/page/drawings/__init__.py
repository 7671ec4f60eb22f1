"""Drawings of a step: what devices hold and send, and when."""
