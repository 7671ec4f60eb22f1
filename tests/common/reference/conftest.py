import dataclasses
import itertools

import pytest

from common.batch import batches
from common.config import RunConfig
from common.reference.program import TrainingProgram
from common.workload.data.synthetic import SyntheticSpec
from common.workload.table import WORKLOADS


@pytest.fixture(scope="session")
def training():
    """Makes the oracle's program for a model on drawn data, with the batches it is to take."""

    def start(model, config, batch_size=6, first=0, num_batches=1):
        _, data = SyntheticSpec(examples=2 * batch_size).fit(model)
        rates = {"sgd": 0.05, "adamw": 0.01}
        workload = dataclasses.replace(WORKLOADS["synthetic-mlp"], model=model, data=data, learning_rates=rates)
        split = data.load()
        stream = batches(split.train_inputs, split.train_targets, batch_size, config.seed, first)
        return TrainingProgram(workload, config), list(itertools.islice(stream, num_batches))

    return start


@pytest.fixture(scope="session")
def oracle_config():
    return RunConfig(framework="numpy", strategy="oracle", dtype="float64")
