"""Every known mistake: the mutants, and those from public issue threads, each with a cell in which it matters."""

from collections.abc import Callable
from functools import partial

from samestep.common.reference import silent_bugs as bugs
from samestep.common.reference import silent_updates as updates
from samestep.common.reference.features.mistakes import MISTAKES as OF_FEATURES
from samestep.common.reference.mutants import GPT, MUTANTS, Apply, Mutant, in_records
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.silent_positions import MISTAKES as OF_POSITIONS
from samestep.common.reference.silent_runs import MISTAKES as OF_RUNS
from samestep.common.reference.techniques import MISTAKES
from samestep.common.workload.models.spec import ignores_targets

TIED, IGNORED = f"{GPT}+tied=true", f"{GPT}+ignored=0.5"
STEPS, RATE = "accumulation_steps=4", "warmup_steps=40"
OfDevices = Callable[[TrainingProgram, int], bool]
"""Makes a program wrong in one way, given the number of devices; False if it has nothing that could be wrong so."""


def _bug(name: str, cell: str, sentence: str, apply: OfDevices) -> Mutant:
    return Mutant(name, sentence, _of_devices(apply), cell)


def _in_records(name: str, cell: str, apply: OfDevices) -> Mutant:
    return in_records(name, _of_devices(apply), cell)


def _of_devices(apply: OfDevices) -> Apply:
    return lambda program, context: apply(program, context.devices)


def _times_targets(program: TrainingProgram, devices: int) -> bool:
    return bugs.scale_by_batch(lambda batch: batch.num_targets, False, True, program)


def _counts_ignored(program: TrainingProgram, devices: int) -> bool:
    every = lambda batch: batch.num_targets / batch.targets[batch.indices].size  # noqa: E731
    return bugs.scale_by_batch(every, True, ignores_targets(program.run.workload.model), program)


def _by_micro(weight: Callable[[int, int], float]) -> OfDevices:
    return partial(bugs.weigh_microbatches, weight)


LOSS_AND_SUM = (
    _in_records("mean_of_means", f"{IGNORED}+{STEPS}", bugs.mean_of_means),
    _bug(
        "ignored_counted", IGNORED, "targets that do not count are in the divisor: padding is counted", _counts_ignored
    ),
    _in_records("times_targets", GPT, _times_targets),
    _in_records("times_microbatches", f"{GPT}+{STEPS}", _by_micro(lambda micro, count: count)),
    _in_records("divided_by_microbatches", f"{GPT}+{STEPS}", _by_micro(lambda micro, count: 1 / count)),
    _bug(
        "divided_each_microbatch",
        f"{GPT}+{STEPS}",
        "the sum of micro-batches is divided after each of them: a moving average, not a sum",
        _by_micro(lambda micro, count: count ** -float(count - micro)),
    ),
    _bug(
        "doubled_each_microbatch",
        f"{GPT}+{STEPS}",
        "what was accumulated is doubled by each further micro-batch",
        _by_micro(lambda micro, count: 2.0 ** (count - 1 - micro)),
    ),
    _bug(
        "last_microbatch_only",
        f"{GPT}+{STEPS}",
        "only the last micro-batch counts: the others were overwritten",
        _by_micro(lambda micro, count: float(micro == count - 1)),
    ),
    _bug(
        "last_microbatch_lost",
        f"{GPT}+{STEPS}",
        "the last micro-batch is missing: the exchange came before it",
        _by_micro(lambda micro, count: float(micro < count - 1)),
    ),
    _bug(
        "loss_of_first_replica",
        GPT,
        "the reported loss is that of the first shard alone; the step itself is right",
        partial(bugs.report_loss, lambda parts: len(parts) * parts[0][0]),
    ),
    _in_records(
        "loss_summed", GPT, partial(bugs.report_loss, lambda parts: len(parts) * sum(loss for loss, _ in parts))
    ),
    _bug(
        "loss_divided_twice",
        GPT,
        "the reported loss is divided by {devices} replicas once more; the step itself is right",
        partial(bugs.report_loss, lambda parts: sum(loss for loss, _ in parts) / len(parts)),
    ),
    _in_records("partial_on_replicated", GPT, bugs.partial_on_replicated),
    _bug(
        "identity_log_softmax",
        GPT,
        "the gradient of log-softmax is that of the identity",
        updates.identity_log_softmax_gradient,
    ),
)
PARAMETERS = (
    _in_records("untied_head", TIED, partial(bugs.tied_halves, 1.0, 0.0)),
    _bug(
        "head_half_only",
        TIED,
        "the tied table has only half of its gradient, that of the head",
        partial(bugs.tied_halves, 0.0, 1.0),
    ),
    _bug(
        "tied_halves_averaged",
        TIED,
        "the two halves of the tied table's gradient are averaged, not added",
        partial(bugs.tied_halves, 0.5, 0.5),
    ),
    _bug(
        "tied_head_twice",
        TIED,
        "the head's half of the tied table's gradient counts twice",
        partial(bugs.tied_halves, 1.0, 2.0),
    ),
)
RUN = (
    _in_records("same_data_on_every_worker", GPT, updates.same_data_on_every_worker),
    _in_records("padded_sample_twice", GPT, updates.padded_sample_twice),
    _in_records("optimizer_state_lost", GPT, updates.optimizer_state_lost),
    _in_records("step_count_lost", GPT, updates.step_count_lost),
    _in_records("schedule_runs_n_times", f"{GPT}+{RATE}", updates.schedule_runs_n_times),
)
SILENT_BUGS: tuple[Mutant, ...] = (*LOSS_AND_SUM, *PARAMETERS, *RUN, *OF_POSITIONS, *OF_RUNS, *OF_FEATURES, *MISTAKES)
KNOWN: tuple[Mutant, ...] = (*MUTANTS, *SILENT_BUGS)
"""What the diagnosis tries."""
