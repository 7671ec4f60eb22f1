import dataclasses
import itertools

import pytest

from samestep.common.batch import batches
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.data.synthetic import SyntheticSpec
from samestep.common.workload.optimizers.table import optimizer_named
from samestep.common.workload.table import workload_named


@pytest.fixture(scope="session")
def training():
    """Makes the oracle's program for a model on drawn data, with the batches it is to take."""

    def start(model, config, batch_size=6, first=0, num_batches=1):
        _, data = SyntheticSpec(examples=2 * batch_size).fit(model)
        workload = dataclasses.replace(workload_named("synthetic-mlp"), model=model, data=data)
        run = parse(config)
        rates = {"sgd": 0.05, "adamw": 0.01}
        name = run.optimizer.name
        optimizer = optimizer_named(name)(config.learning_rate or rates[name])
        split = data.load()
        stream = batches(split.train_inputs, split.train_targets, batch_size, config.seed, first)
        program = TrainingProgram(dataclasses.replace(run, workload=workload, optimizer=optimizer))
        return program, list(itertools.islice(stream, num_batches))

    return start


@pytest.fixture(scope="session")
def oracle_config():
    return RunConfig(framework="numpy", strategy="oracle", workload="synthetic-mlp", dtype="float64")
