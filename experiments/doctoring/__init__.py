"""What `samestep doctor` looks at: the GPUs of a machine, the checks that it runs on them, and what they found."""
