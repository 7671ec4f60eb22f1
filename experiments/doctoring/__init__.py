"""What `samestep doctor` uses: the GPUs of a machine, the checks that it runs on them, and their results."""
