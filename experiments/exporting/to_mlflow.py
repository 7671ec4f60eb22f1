"""Writes runs into a store of MLflow: a folder, a database, or a server."""

import os
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable
from samestep.experiments.exporting.replay import Replay

EXPERIMENT = "samestep"
_DIRECTORY = "samestep.directory"
"""The tag that identifies a run that was exported before."""
_MOST_AT_ONCE = 1000
"""The most metrics of one call of MLflow."""


def write(replay: Replay, target: str) -> str:
    """Writes a run, unless the store has it already; returns its place in the store.

    Args:
        replay: The run.
        target: A folder, or the URI of a database or a server, as in MLFLOW_TRACKING_URI.

    Raises:
        ConfigError: There is no such store, or it refuses the run.
        Unavailable: MLflow is not installed.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # Otherwise mlflow 3.17 tries a server for four minutes, and refuses folders although it can still read them.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise Unavailable("mlflow is not installed: pip install 'samestep[mlflow]'") from None
    try:
        return _write(replay, target)
    except (MlflowException, ValueError) as error:  # mlflow raises ValueError for some URIs and answers
        raise ConfigError(
            f"-o {target}: MLflow says: {error}; name a folder, or the URI of a server that runs."
        ) from None


def _write(replay: Replay, target: str) -> str:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=target if "://" in target else Path(target).resolve().as_uri())
    known = client.get_experiment_by_name(EXPERIMENT)
    experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT)
    place = str(replay.directory.resolve())
    quoted = place.replace('"', "")
    for found in client.search_runs([experiment], filter_string=f'tags.`{_DIRECTORY}` = "{quoted}"'):
        return f"{target}: {replay.name} is there as run {found.info.run_id}"
    tags = {**replay.notes, _DIRECTORY: place}
    run_id = client.create_run(experiment, int(1000 * replay.started), tags, replay.name).info.run_id
    for name, value in replay.settings.items():
        client.log_param(run_id, name, value)
    every = [Metric(point.name, point.value, int(1000 * point.time), point.step) for point in replay.curve]
    every += [Metric(name, value, int(1000 * replay.ended), 0) for name, value in replay.outcome.items()]
    for first in range(0, len(every), _MOST_AT_ONCE):
        client.log_batch(run_id, metrics=every[first : first + _MOST_AT_ONCE])
    client.set_terminated(run_id, "FINISHED", int(1000 * replay.ended))
    return f"{target}: {replay.name} as run {run_id}"
