"""What the rows that split a model refuse before anything starts. Imports no framework."""

from common.config import RunConfig
from common.errors import ConfigError, unknown
from common.evidence.laws.pipelined import SCHEDULES, holders_of
from common.mesh import Mesh
from common.workload.models.spec import even_split_table
from common.workload.table import Workload


def enough_cuts(workload: Workload, config: RunConfig) -> None:
    """Refuses more stages than the model has cuts.

    Raises:
        ConfigError: There are.
    """
    cuts, num_stages = workload.model.cuts(), len(holders_of(config))
    if num_stages > len(cuts):
        per_rank = num_stages // Mesh.parse(config.mesh or "pipe=1").axis("pipe")
        each = f" ({per_rank} a rank)" if per_rank > 1 else ""
        grow = "give it more layers=" if workload.model.name in ("transformer", "mlp") else "use a deeper model"
        raise ConfigError(
            f"{num_stages} stages{each} are more than the {len(cuts)} cuts of {config.workload} "
            f"({', '.join(cut.name for cut in cuts[:2])}, ...); use {len(cuts) // per_rank} ranks or fewer, or {grow}."
        )


def runnable_schedule(workload: Workload, config: RunConfig) -> None:
    """Refuses what a schedule would die of: torch aborts a process on a batch that does not divide.

    Raises:
        ConfigError: The schedule is unknown, or the micro-batches fit neither the batch nor the stages.
    """
    name, microbatches = str(config.options["schedule"]), int(config.options["microbatches"] or 0)
    if name not in SCHEDULES:
        raise unknown("schedule", name, SCHEDULES)
    enough_cuts(workload, config)
    if microbatches < 1:
        raise ConfigError(f"--microbatches is {microbatches}; give a whole number from 1 up.")
    mesh = Mesh.parse(config.mesh or "pipe=1")
    shards = mesh.axis("data") * mesh.axis("shard") * config.techniques.micro_batches
    rows, ranks, num_stages = (config.batch_size or 0) // shards, mesh.axis("pipe"), len(holders_of(config))
    if rows % microbatches:
        fitting = [str(count) for count in range(1, rows + 1) if rows % count == 0]
        raise ConfigError(
            f"{rows} examples do not divide into {microbatches} micro-batches; use --microbatches with one of "
            f"{', '.join(fitting)}."
        )
    least = {"1f1b": num_stages, "dualpipev": num_stages}.get(name, 1)
    if microbatches < least:
        raise ConfigError(
            f"{name} keeps {least} stages busy with a micro-batch each; --microbatches {microbatches} is fewer: "
            f"give {least} or more, or choose --schedule gpipe."
        )
    rounds = max(1, microbatches // ranks)
    if name in ("interleaved_1f1b", "interleaved_zero_bubble") and microbatches % rounds:
        raise ConfigError(
            f"{name} takes its micro-batches in {rounds} equal rounds of at least {ranks}; --microbatches "
            f"{microbatches} does not divide by {rounds}: use {microbatches // ranks * ranks}."
        )


def divisible_layers(workload: Workload, config: RunConfig) -> None:
    """Refuses a tensor axis that cuts a layer, a head or a sequence into unequal parts.

    Raises:
        ConfigError: It does.
    """
    parts = Mesh.parse(config.mesh or "tensor=1").axis("tensor")
    heads = getattr(workload.model, "heads", None)
    if heads is not None and heads % parts:
        raise ConfigError(
            f"{heads} heads do not divide among a tensor axis of {parts}; use one that divides {heads}, or +heads=."
        )
    even_split_table(workload.model, parts)
    if config.options.get("sequence_parallel"):
        if heads is None:
            raise ConfigError(f"--sequence-parallel needs a transformer; {config.workload} has no sequence.")
        (context,) = workload.model.inputs().shape
        if context % parts:
            raise ConfigError(
                f"a sequence of {context} does not divide among a tensor axis of {parts}; give +context=."
            )


def consistent(config: RunConfig) -> bool:
    """Whether a parameter server waits for all workers before it applies their gradients."""
    return config.options["consistency"] == "sync"


def three_dimensions(workload: Workload, config: RunConfig) -> None:
    """Refuses what any of the three would, and replicas along two axes.

    Raises:
        ConfigError: One would.
    """
    mesh = Mesh.parse(config.mesh or "pipe=1")
    if mesh.axis("data") > 1 and mesh.axis("shard") > 1:
        raise ConfigError(f"--mesh {mesh} has both data and shard; hybrid takes one of them beside pipe and tensor.")
    runnable_schedule(workload, config)
    divisible_layers(workload, config)


def unclipped(workload: Workload, config: RunConfig) -> None:
    """Refuses clipping where no process sees the whole gradient.

    Raises:
        ConfigError: It is asked for.
    """
    if config.techniques.clip_norm is not None:
        raise ConfigError(
            f"torch:{config.strategy} does not clip: no process sees the whole gradient; leave clip_norm out."
        )


def unclipped_stages(workload: Workload, config: RunConfig) -> None:
    """Refuses clipping, and more stages than the model has cuts.

    Raises:
        ConfigError: Either is asked for.
    """
    unclipped(workload, config)
    enough_cuts(workload, config)
