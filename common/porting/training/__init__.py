"""What two implementations do after the forward pass: losses, running statistics, and the update of the parameters."""
