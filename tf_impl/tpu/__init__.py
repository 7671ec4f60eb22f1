"""TPUs: found, emulated, or compiled for where there is none."""
