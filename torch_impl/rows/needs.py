"""What rows refuse before anything starts; options.py refuses what concerns a single option. Imports no framework."""

import os
import shutil

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.features.used import refuse_exchange
from samestep.common.flags import flags, spell_flag
from samestep.common.mesh import divisors
from samestep.common.optimizer import refuse_some
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice, flags_of
from samestep.common.workload.models.spec import shared_parameters
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.torch_impl.rows.options import (
    DeepSpeedOptions,
    HybridOptions,
    PipelineOptions,
    TensorOptions,
    refuse_lonely,
)

_MOST_NAMED = 20


def check_stages(run: Run, stages_per_rank: int = 1) -> None:
    """Refuses models that cannot be split into the stages of a run.

    Args:
        run: The run.
        stages_per_rank: The number of stages that each rank has.

    Raises:
        ConfigError: There are more stages than segments, the last stage would not return one tensor for the loss, or stages
            would share a parameter.
    """
    segments, model = run.workload.model.segments(), run.workload.model
    if model.facts.returns != "outputs":
        what = "its own loss" if model.facts.returns == "loss" else "several tensors"
        raise ConfigError(
            f"{run.name} hands one tensor from its last stage to the loss, and {run.workload.name} returns {what}; return the "
            f"outputs alone, or choose a row that keeps the model whole, such as torch:fsdp."
        )
    if model.facts.source and len(segments) == 1:
        raise ConfigError(
            f"{run.name} splits a model by its segments, and {run.workload.name} has one; add `segments={{'torch': function}}` "
            f"to its samestep.Model, where function(model) returns the forward pass as functions by module path."
        )
    for shared, users in () if model.facts.ties_stages else shared_parameters(model).items():
        between = " and ".join(user.name for user in users)
        raise ConfigError(
            f"{shared} is tied: the segments {between} both use it, and each rank of {run.name} would train a half of its own; "
            f"untie it, or choose a row that keeps the model whole, such as torch:fsdp."
        )
    refuse_some(run)
    num_stages = run.mesh.pipe * stages_per_rank
    if num_stages > len(segments):
        each = f" ({stages_per_rank} a rank)" if stages_per_rank > 1 else ""
        grow = "give it more layers=" if "layers" in flags(model) else "use a deeper model"
        raise ConfigError(
            f"{num_stages} stages{each} are more than the {len(segments)} segments of {run.workload.name} "
            f"({', '.join(segment.name for segment in segments[:2])}, ...); use {len(segments) // stages_per_rank} ranks or "
            f"fewer, or {grow}."
        )


def check_schedule(run: Run[PipelineOptions]) -> None:
    """Refuses what a schedule would fail on; for example, torch aborts the process if the batch does not divide.

    Raises:
        ConfigError: The micro-batches do not fit the batch or the stages, there are too many stages, or recomputation would
            save nothing.
    """
    refuse_exchange(run, "it takes one micro-batch after the other")
    name, microbatches = run.options.schedule, run.options.microbatches
    schedule, num_ranks = SCHEDULES[name], run.mesh.pipe
    check_stages(run, schedule.stages_per_rank)
    if computed_twice(run) and schedule.delays_weights:
        raise ConfigError(
            f"{name} computes the gradients of weights later, and until then torch keeps what --recompute has computed again, "
            "which takes more memory than without it; choose --schedule 1f1b or interleaved_1f1b."
        )
    rows = run.examples_per_pass
    if rows % microbatches:
        fitting = sorted(divisors(rows), key=lambda count: abs(count - microbatches))[:_MOST_NAMED]
        raise ConfigError(
            f"{rows} examples do not divide into {microbatches} micro-batches; use --microbatches with one of "
            f"{', '.join(map(str, sorted(fitting)))}."
        )
    num_stages = num_ranks * schedule.stages_per_rank
    if schedule.fills_stages and microbatches < num_stages:
        raise ConfigError(
            f"{name} keeps {num_stages} stages busy with a micro-batch each; --microbatches {microbatches} is fewer: "
            f"give {num_stages} or more, or choose --schedule gpipe."
        )
    rounds = max(1, microbatches // num_ranks)
    if schedule.in_rounds and microbatches % rounds:
        raise ConfigError(
            f"{name} takes its micro-batches in {rounds} equal rounds of at least {num_ranks}; --microbatches "
            f"{microbatches} does not divide by {rounds}: use {microbatches // num_ranks * num_ranks}."
        )


def check_engine(run: Run[DeepSpeedOptions]) -> None:
    """Refuses parameters that may lack gradients, and frozen parameters at stage 3, which the engine never gathers (0.19).

    Raises:
        ConfigError: Parameters of the user model may lack gradients, or stage 3 would shard frozen ones.
    """
    _check_flat(run)
    frozen = [name for name, param in run.workload.model.params().items() if param.frozen]
    if frozen and run.options.cuts_parameters:
        raise ConfigError(
            f"{run.name} with --zero-stage 3 cannot gather the frozen parameters of {run.workload.name} ({frozen[0]}, ...) for "
            "its state; give --zero-stage 1 or 2, or choose torch:fsdp."
        )


def check_workers(run: Run) -> None:
    """Refuses sync statistics, and a forward pass that writes into parameters.

    Raises:
        ConfigError: Sync statistics are asked for, or what the forward pass writes into a worker's copy would be lost.
    """
    refuse_exchange(run, "its workers meet only at the server")
    if written := run.workload.model.facts.written:
        raise ConfigError(
            f"{run.name} has its workers pull parameters again in every step, and the forward pass of {run.workload.name} "
            f"writes into {written[0]}; hold it in a buffer, or choose torch:ddp."
        )


def check_replicas(run: Run) -> None:
    """Refuses a user model whose replicas would lose what they keep in addition to their parameters.

    Raises:
        ConfigError: The model returns several tensors, has buffers or writes into parameters, or sync statistics are asked for.
    """
    refuse_exchange(run, "its replicas are threads, which exchange nothing in the forward pass")
    if run.workload.model.facts.returns == "several":
        raise ConfigError(
            f"{run.name} gathers the outputs of its replicas as one tensor, and {run.workload.name} returns several; use "
            f"torch:ddp."
        )
    facts = run.workload.model.facts
    if kept := (*facts.buffers, *facts.written):
        lost = "the buffers of" if facts.buffers else "what a forward pass writes into parameters of"
        raise ConfigError(
            f"{run.name} creates its replicas again in every step, which loses {lost} {run.workload.name} ({kept[0]}, ...); use "
            f"torch:ddp."
        )


def check_sequence(run: Run[TensorOptions]) -> None:
    """Refuses to split a sequence into unequal parts.

    Raises:
        ConfigError: The parts would be unequal, or the model has no sequence that could be split.
    """
    if run.options.sequence_parallel:
        if any(param.stacked for param in run.workload.model.params().values()):
            raise ConfigError("--sequence-parallel does not cut mixtures of experts; leave it out, or +experts=.")
        if not any(param.shares_input for param in run.workload.model.params().values()):  # attention does
            raise ConfigError(f"--sequence-parallel needs a transformer; {run.workload.name} has no sequence.")
        (context,) = run.workload.model.inputs().shape
        if context % run.num_devices:
            raise ConfigError(
                f"a sequence of {context} does not divide among a tensor axis of {run.num_devices}; give +context=."
            )


def check_three_dimensions(run: Run[HybridOptions]) -> None:
    """Refuses what a pipeline or an axis would refuse, and tied parameters that would become two separate ones.

    Raises:
        ConfigError: A pipeline or an axis refuses the run, or a tied parameter would become two.
    """
    check_schedule(run)
    refuse_lonely(run)
    _check_spread(run)
    stage_ranks = SCHEDULES[run.options.schedule].stage_ranks(run.mesh.pipe)
    if len(stage_ranks) > 1 and stage_ranks[0] == stage_ranks[-1] and shared_parameters(run.workload.model):
        raise ConfigError(
            f"--schedule {run.options.schedule} gives one rank the first and the last stage, which {run.name} distributes one by "
            f"one: a parameter that is tied between them would be two; choose another --schedule, or torch:pp."
        )


def _check_spread(run: Run[HybridOptions]) -> None:
    """Refuses to spread the optimizer state if no two ranks have the same parameters, or if fewer have the same experts.

    Raises:
        ConfigError: The run asks for it.
    """
    mesh = run.mesh
    if run.options.shard_optimizer and (run.mesh.parts("parameters") > 1 or not mesh.replica_axes):
        raise ConfigError(
            f"--shard-optimizer spreads optimizer state over ranks with the same parameters, and {mesh} has none; add "
            "data=2 to --mesh, in place of shard, or leave it out."
        )
    if run.options.shard_optimizer and mesh.parts("stacked") > 1:
        raise ConfigError(
            f"--shard-optimizer gives each parameter to one of the ranks that have it, and on {mesh} fewer ranks share an "
            "expert than the other parameters; leave it out, or leave out expert= in --mesh."
        )


def _check_flat(run: Run) -> None:
    """Refuses a user model whose parameters may lack gradients, because parameters flattened together are updated together.

    Raises:
        ConfigError: A parameter may lack a gradient, and an update with a zero gradient would change it.
    """
    facts = run.workload.model.facts
    if facts.may_skip and (facts.branches or not run.optimizer.rests):
        which = f"{facts.unused[0]}, ..." if facts.unused else "as its forward pass branches"
        raise ConfigError(
            f"{run.name} flattens all parameters and updates them together; {run.workload.name} may leave some without a "
            f"gradient ({which}), which torch's optimizers leave as they are: choose torch:zero1 or torch:fsdp."
        )


def check_shards(run: Run) -> None:
    """Refuses a fixed order that shards cannot keep, and an attention exchange without an axis.

    Raises:
        ConfigError: A fixed order is asked for together with the norm of a gradient, gradients in two bytes, or replicas of
            shards; or attention would exchange keys and values along no axis.
    """
    refuse_lonely(run)
    own = flags_of("transform", run.techniques) | flags_of("gradient_error", run.techniques)
    found = [*map(spell_flag, own), *(f"the axis {name}" for name in run.mesh.replica_axes)]
    if run.techniques.fixed_order is not None and found:
        raise ConfigError(
            f"{run.name} has --fixed-order only where each number of a gradient is added up once, in float32 or float64; leave "
            f"out {found[0]}, or choose torch:ddp or torch:zero1."
        )


def require_compiler(run: Run) -> None:
    """Checks that torch.compile finds a C++ compiler, which it needs on CPU cores.

    Raises:
        Unavailable: There is none.
    """
    wanted = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]
    if run.techniques.compile and not any(shutil.which(name) for name in wanted):
        raise Unavailable(
            f"--compile needs a C++ compiler, and there is no {' or '.join(wanted)}: apt install g++, or set CXX."
        )
