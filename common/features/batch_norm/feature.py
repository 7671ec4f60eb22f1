"""Batch normalization as a feature of a model."""

import dataclasses

from samestep.common.features.batch_norm.bound import error_growth, say_growth
from samestep.common.features.batch_norm.cost import framework_sums, stated_sums
from samestep.common.features.batch_norm.statistics import (
    batch_norms,
    buffers,
    check_statistics,
    framework_norms,
    takes_shares,
)
from samestep.common.features.feature import Feature, LayerExchange, RunningBuffers, Suspect, count_layers
from samestep.common.strategy import Run


def norms_apart(run: Run) -> tuple[str, ...]:
    """Returns the layers of a user's model whose running statistics each replica updates with those of its own examples."""
    return tuple(framework_norms(run.workload.model)) if run.batch_norm == "local" else ()


def suspect_statistics(run: Run) -> Suspect | None:
    """Suspects the statistics of each replica's own shard, and the user's running buffers, which are updated by them as well."""
    held, running = [], run.workload.model.facts.habits.running
    if norms := norms_apart(run):
        held.append(f"the local statistics of {count_layers(norms, 'BatchNorm layer')}")
    if running and run.batch_norm != "frozen":
        held.append(f"the moves of {count_layers(running, 'running buffer')}")
    if not held:
        return None
    return Suspect(" and ".join(held), {"batch_norm": "frozen"}, "frozen (--batch-norm frozen)")


def of_whole(run: Run) -> Run:
    """Returns the run of one device that takes the whole batch: its local statistics are those of the whole batch."""
    return dataclasses.replace(run, batch_norm="local") if run.batch_norm == "sync" else run


BATCH_NORM = Feature(
    flag="batch_norm",
    field="norm",
    is_in_own=lambda facts: bool(facts.featured.get("batch_norm") or facts.habits.running),
    say_switched=lambda features: (
        "" if features.batch_norm == "local" else f"batch normalization {features.batch_norm}"
    ),
    refuse=check_statistics,
    layers=batch_norms,
    buffers=RunningBuffers(
        of=buffers,
        asked_by="+norm=batch",
        in_words="running statistics",
        kept_by="--batch-norm frozen",
        are_kept=lambda run: run.batch_norm == "frozen",
    ),
    exchange=LayerExchange(
        flag="--batch-norm sync",
        in_words="the statistics of the whole batch",
        without="--batch-norm local",
        is_asked=lambda run: run.batch_norm == "sync",
        sends=stated_sums,
        framework_sends=framework_sums,
    ),
    takes_shares=takes_shares,
    of_whole=of_whole,
    classes={"normalization": ("BatchNormalization", *(f"BatchNorm{n}d" for n in (1, 2, 3)))},
    layers_apart=norms_apart,
    suspect=suspect_statistics,
    error_growth=error_growth,
    say_growth=say_growth,
)
