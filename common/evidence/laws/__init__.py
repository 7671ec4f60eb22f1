"""What a step must cost, from arithmetic alone: memory by class, exchanges, bytes on the wire. One file a family."""
