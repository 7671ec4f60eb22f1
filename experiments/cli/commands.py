"""The commands of `samestep`: each is a module of `experiments`, with what it does."""

COMMANDS = {
    "demo": "see it work in ten seconds: two strategies that are right, and one with a mistake, which is named",
    "run": "train one workload under one strategy",
    "compare": "train one workload under many strategies and print one table",
    "diff": "say whether two recorded scripts took the same steps, and where they first differ",
    "predict": "predict the memory and the traffic of a step, without running it",
    "record": "run your own training script, unchanged, and record what every step did",
    "model": "show what samestep understood about your model, and which strategies can train it",
    "port": "say whether your PyTorch and Keras models are the same, and which layer differs first",
    "advise": "rank the ways to lay out a model on a machine, which may be one that you do not have",
    "report": "write a page, or tables, about runs and comparisons",
    "calibrate": "measure this machine for `advise --machine here`",
    "doctor": "show what this machine can run, and check every strategy on its GPUs",
    "checkpoints": "list the checkpoints of a run, and say whether they are intact",
    "ledger": "prove that every step took each of its examples exactly once, however often the run died",
    "explore": "play a step of two strategies side by side, on a page with sliders for devices and width",
    "strategies": "print the catalogue of strategies, or one strategy in full",
    "clean": "show what samestep keeps on this disk, and remove what you name",
    "export": "replay runs into TensorBoard or MLflow, or write states as safetensors, dcp or tf",
    "worker": "run one process of a run that `run --prepare` wrote",
}
