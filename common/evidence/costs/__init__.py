"""What a step costs, from arithmetic alone: memory by class, exchanges, bytes on the wire. One file a family."""
