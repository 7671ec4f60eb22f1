"""The commands of `samestep`: each is a module of `experiments`, with what it does."""

COMMANDS = {
    "demo": "in ten seconds: two rows that take the same step, and one with a mistake in it, found and named",
    "run": "train one workload under one strategy",
    "compare": "train one workload under many strategies and print one table",
    "diff": "say whether two recorded scripts took the same steps, and where they first differ",
    "predict": "predict what a step holds and sends, without running it",
    "record": "run your training script and record what every step did, without a changed line",
    "model": "say what samestep understands of your model, and which rows can take it",
    "port": "say whether your torch model and your Keras model are the same, and which layer differs first",
    "advise": "rank the layouts of a model on a machine that need not be here",
    "report": "write a page, or tables, about runs and comparisons",
    "calibrate": "measure this machine for `advise --machine here`",
    "doctor": "say what this machine can run, and prove every row on its GPUs",
    "checkpoints": "list the checkpoints of a run, and whether they are whole",
    "ledger": "prove that every example of every step was gathered once, however often the run died",
    "explore": "play a step of two strategies side by side, on a page with sliders for devices and width",
    "strategies": "print the catalogue of strategies, or one strategy in full",
    "clean": "show what samestep keeps on this disk, and remove what you name",
    "export": "replay runs into TensorBoard or MLflow, write states as safetensors, dcp or tf",
    "worker": "run one process of a run that `run --prepare` wrote",
}
