"""What each layer saves for the backward pass, in bytes."""
