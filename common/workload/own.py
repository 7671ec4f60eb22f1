"""A workload of the user's own model, on their own data."""

from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.workload.models.own import DATA, OwnSpec
from samestep.common.workload.optimizers import OWN, OptimizerSpec
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
        raise ConfigError(f"--model {config.model} is not described yet; the commands of samestep do so.")
    if config.data is None:
        raise ConfigError(f"--model {config.model} needs data; add --data ARRAYS.npz or --data FILE.py:FUNCTION.")
    model = OwnSpec.of(config.described)
    if config.seed != model.described.seed:
        raise ConfigError(f"{config.described} was described with seed {model.described.seed}, not {config.seed}.")
    path = Path(config.described) / DATA
    data = UserSpec(str(path) if path.exists() else config.data, as_given=True)
    fitted, data = data.fit(model)
    described = model.described
    rates = RATES if described.optimizer is None else {OWN: described.optimizer.learning_rate, **RATES}
    return Workload(described.title, fitted, data, described.metric, rates, BATCH_SIZE, STEPS)


def optimizer_of(framework: str, workload: Workload, name: str, learning_rate: float) -> OptimizerSpec:
    """Makes the spec of a workload's optimizer.

    Args:
        framework: Of the run.
        workload: What is trained.
        name: One of its `learning_rates`, or another.
        learning_rate: The rate.

    Raises:
        ConfigError: It is the user's own, and there is none that the framework's strategies can take.
    """
    if name != OWN:
        return OptimizerSpec(name, learning_rate)
    described = workload.model.described if isinstance(workload.model, OwnSpec) else None
    found = described and described.optimizer
    if described is None or found is None:
        why = "has no optimizer; add `optimizer={'torch': lambda params: ...}` to its samestep.Model"
    elif framework == "tf":
        why = "has an optimizer, and TensorFlow's rows update by formulas of ours; `samestep port` takes one of Keras"
    elif found.refused:
        why = found.refused
    else:
        return OptimizerSpec(OWN, learning_rate, source=described.source, kept=found.kept)
    raise ConfigError(f"{workload.name} {why}; or choose --optimizer adamw or sgd.")
