"""The code that all frameworks share: the workload, the judging of runs, the runtime. It imports no framework."""
