"""Batch normalisation as a feature of a model."""

from samestep.common.features.feature import Feature, Suspect, count_layers
from samestep.common.strategy import Run


def suspect_statistics(run: Run) -> Suspect | None:
    """Suspects the statistics of each replica's own shard, and running buffers of the user's, which move by them as well."""
    facts, held = run.workload.model.facts, []
    norms, running = tuple(facts.framework_norms), facts.habits.running
    if norms and run.batch_norm == "local":
        held.append(f"the local statistics of {count_layers(norms, 'BatchNorm layer')}")
    if running and run.batch_norm != "frozen":
        held.append(f"the moves of {count_layers(running, 'running buffer')}")
    if not held:
        return None
    return Suspect(" and ".join(held), {"batch_norm": "frozen"}, "frozen (--batch-norm frozen)")


BATCH_NORM = Feature(
    say_switched=lambda features: (
        "" if features.batch_norm == "local" else f"batch normalisation {features.batch_norm}"
    ),
    suspect=suspect_statistics,
)
