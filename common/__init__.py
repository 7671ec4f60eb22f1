"""What every framework shares: the workload, how runs are judged, the runtime. Imports no framework."""
