"""Steps of the very function that is lowered for a TPU, taken on the CPU: prints its losses and the oracle's, a case a line."""

import itertools
import json

import numpy as np
import tensorflow as tf

from common.batch import batches
from common.config import RunConfig, Techniques
from common.reference.program import TrainingProgram
from common.workload.models.spec import init
from common.workload.table import resolve
from tests.cells import SIZED
from tf_impl.optimizers import corrections
from tf_impl.tpu_lowering import Step

STEPS = 4


CASES = [*((model, "adamw") for model in SIZED), ("mlp", "sgd")]


def main() -> None:
    """In float64, accumulated over two micro-batches, clipped."""
    for model, optimizer in CASES:
        techniques = Techniques(micro_batches=2, clip_norm=0.5)
        config = RunConfig("tf", "tpu", SIZED[model], dtype="float64", optimizer=optimizer, techniques=techniques)
        workload = resolve(config)
        data = workload.data.load()
        oracle, step = TrainingProgram(workload, config), Step(workload, config, replicas=1)
        take = tf.function(step, autograph=False)
        params = [tf.constant(value) for value in init(workload.model, config.seed).values()]
        state = params + [tf.zeros_like(value) for value in params] * len(step.optimizer.slots)
        losses = []
        stream = batches(data.train_inputs, data.train_targets, 48, config.seed)
        for number, batch in enumerate(itertools.islice(stream, STEPS), start=1):
            oracle.step(batch)
            x, y = map(tf.constant, batch.rows(0, 1))
            *state, loss = take(*state, x, y, tf.constant(corrections(step.optimizer, number), tf.float64))
            losses.append(float(loss))
        off = [float(np.abs(a - b.numpy()).max()) for a, b in zip(oracle.params.values(), state, strict=False)]
        print(json.dumps({"model": model, "losses": losses, "oracle": oracle.losses(), "weights_off": max(off)}))


if __name__ == "__main__":
    main()
