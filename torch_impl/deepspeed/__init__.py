"""Adapts DeepSpeed's engine for the row `deepspeed`."""
