"""A workload of the user's own model, on their own data."""

from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.workload.models.own import DATA, OwnSpec
from samestep.common.workload.workload import Workload

BATCH_SIZE, STEPS = 48, 50
"""The defaults: 48 divides among 2, 3, 4, 6 and 8 devices."""
RATES = {"adamw": 2**-10, "sgd": 2**-7}


def own_workload(config: RunConfig) -> Workload:
    """Makes the workload of a request that names the user's model.

    Args:
        config: What was asked for, its model described.

    Raises:
        ConfigError: There are no data, the model is not described, or the data are not those it was described with.
    """
    from samestep.common.workload.data.user import UserSpec  # here: it needs NumPy, which a prediction does without

    if config.described is None:
        raise ConfigError(f"--model {config.model} is not described yet; `samestep run` and `samestep.run` do so.")
    if config.data is None:
        raise ConfigError(f"--model {config.model} needs data; add --data ARRAYS.npz or --data FILE.py:FUNCTION.")
    model = OwnSpec.of(config.described)
    if config.seed != model.described.seed:
        raise ConfigError(f"{config.described} was described with seed {model.described.seed}, not {config.seed}.")
    path = Path(config.described) / DATA
    data = UserSpec(str(path) if path.exists() else config.data, as_given=True)
    fitted, data = data.fit(model)
    described = model.described
    return Workload(described.title, fitted, data, described.metric, RATES, BATCH_SIZE, STEPS)
