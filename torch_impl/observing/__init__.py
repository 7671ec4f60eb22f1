"""Observes a step: its exchanges, and the activations that it saves."""
