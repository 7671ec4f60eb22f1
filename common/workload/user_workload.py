"""A workload with the user's own model and data."""

from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.workload.models.description import DATA
from samestep.common.workload.models.user_model import UserModelSpec
from samestep.common.workload.optimizers.table import DEFAULT, USER, optimizer_named
from samestep.common.workload.workload import Workload

BATCH_SIZE, STEPS = 48, 50
"""The defaults; 48 divides evenly among 2, 3, 4, 6 and 8 devices."""


def user_workload(asked: str, described: str | None, data: str | None, seed: int) -> Workload:
    """Makes the workload of a request that names the user's model.

    Args:
        asked: The model as the user named it.
        described: The folder of its description.
        data: The data as the user named them.
        seed: The seed of the run.

    Raises:
        ConfigError: There are no data, the model is not described, or it was described with other data.
    """
    from samestep.common.workload.data.user_data import UserSpec  # here: it needs NumPy

    if described is None:
        raise ConfigError(f"--model {asked} is not described yet; the commands of samestep do so.")
    if data is None:
        raise ConfigError(f"--model {asked} needs data; add --data ARRAYS.npz or --data FILE.py:FUNCTION.")
    model = UserModelSpec.of(described)
    found = model.described
    if seed != found.seed:
        raise ConfigError(f"{described} was described with seed {found.seed}, not {seed}.")
    path = Path(described) / DATA
    try:
        fitted, split = UserSpec(str(path) if path.exists() else data, as_given=True).fit(model)
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(path), data)) from None
    rates = {DEFAULT: optimizer_named(DEFAULT).default_rate}
    if found.optimizer is not None:
        rates = {USER: found.optimizer.learning_rate, **rates}
    return Workload(found.title, fitted, split, found.metric, rates, BATCH_SIZE, STEPS)
