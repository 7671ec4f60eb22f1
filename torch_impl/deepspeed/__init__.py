"""What the row `deepspeed` needs of DeepSpeed."""
