"""Steps of the very function that is lowered for a TPU, taken on the CPU: prints its losses and the oracle's, a case a line."""

import dataclasses
import itertools
import json

import numpy as np
import tensorflow as tf

from samestep.common.batch import batches
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from samestep.common.workload.initial import init
from samestep.tf_impl.optimizers import coefficients
from samestep.tf_impl.tpu.lowering import ReplicaStep
from tests.cells import SIZED

STEPS = 4


CASES = [*((model, "adamw") for model in SIZED), ("mlp", "sgd")]


def main() -> None:
    """In float64, accumulated over two micro-batches, clipped."""
    for model, optimizer in CASES:
        techniques = Techniques(accumulation_steps=2, clip_norm=0.5)
        asked = RunConfig("tf", "tpu", SIZED[model], dtype="float64", optimizer=optimizer, batch_size=48)
        run = parse(dataclasses.replace(asked, techniques=techniques))
        data = run.workload.data.load()
        oracle, step = TrainingProgram(run), ReplicaStep(run, replicas=1)
        take = tf.function(step, autograph=False)
        params = [tf.constant(value) for value in init(run.workload.model, run.seed).values()]
        state = params + [tf.zeros_like(value) for value in params] * len(run.optimizer.slots)
        losses = []
        stream = batches(data.train_inputs, data.train_targets, run.batch_size, run.seed)
        for number, batch in enumerate(itertools.islice(stream, STEPS), start=1):
            oracle.step(batch)
            x, y = map(tf.constant, batch.rows())
            *state, loss = take(*state, x, y, coefficients(run.optimizer, number))
            losses.append(float(loss))
        off = [float(np.abs(a - b.numpy()).max()) for a, b in zip(oracle.params.values(), state, strict=False)]
        print(json.dumps({"model": model, "losses": losses, "oracle": oracle.losses(), "weights_off": max(off)}))


if __name__ == "__main__":
    main()
