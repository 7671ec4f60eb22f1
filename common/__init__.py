"""What every framework shares: the workload, the evidence, the runtime. Imports no framework."""
