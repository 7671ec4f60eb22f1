"""Prints advice: the table, and below it the sentences of `advice_reasons.py`."""

import shlex

from samestep.common.errors import count, percent
from samestep.common.flags import Scalar
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_active, num_params
from samestep.experiments.advising import advice_reasons as reasons
from samestep.experiments.advising.advice import Advice
from samestep.experiments.advising.ranking import Timed
from samestep.experiments.printing.column_table import Column, table
from samestep.experiments.printing.command_lines import wrap_command
from samestep.experiments.printing.formats import Case, Document
from samestep.experiments.printing.text import (
    bullets,
    decimal_size,
    fill,
    large_number,
    paragraphs,
    screen_width,
)

SHOWN = 8
"""The most lines of the table, each with the fastest layout of a strategy and a mesh; the best of every strategy is
included."""
_MEASURED = 3
"""The most strategies that the user is told to measure."""
_STATE = ", counting parameters, gradients and optimizer state; the activations of this model are not predicted"


def document(advice: Advice) -> Document:
    """Returns everything as a document for any format.

    Args:
        advice: What was found.
    """
    rows = [figures(each, advice) for each in advice.ranked]
    record = {
        "workload": advice.base.workload.name,
        "parameters": num_params(advice.base.workload.model),
        "active_parameters": num_active(advice.base.workload.model),
        "machine": advice.machine,
        "nodes": advice.nodes,
        "global_batch_size": advice.base.batch_size,
        "layouts": rows,
        "without_room": {name: each.needed_bytes for name, each in advice.search.closest.items()},
        "not_possible": advice.search.refused,
        "validation": advice.validation,
        "calibration": advice.calibration,
        "changes": [
            {
                "what": each.what,
                "first": each.first and figures(each.first, advice),
                "before": each.before and figures(each.before, advice),
            }
            for each in advice.changes
        ],
        "steps_alone": advice.alone and figures(advice.alone, advice),
    }
    return Document(
        "samestep advise", lambda: report(advice), record, rows, [Case(each.layout) for each in advice.ranked]
    )


def report(advice: Advice) -> str:
    """Returns the text for people."""
    changes = [reasons.changed(each, advice.first) for each in advice.changes]
    cost = advice.cost_of(advice.first)
    return paragraphs(
        fill(_caption(advice)),
        table(COLUMNS, _chosen(advice), screen_width()),
        fill(f"The fastest is {reasons.say_first(advice)}. {reasons.why(advice)} {reasons.say_room(advice)}".strip()),
        fill(f"{cost.say_rate()} {cost.say_whole()}".strip()),
        bullets([*reasons.others(advice), *reasons.impossible(advice)]),
        fill(reasons.trust(advice)),
        "Under other conditions:\n" + bullets([*changes, *reasons.steps_alone(advice)]),
        next_step(advice, screen_width()),
    )


def next_step(advice: Advice, width: int) -> str:
    """Returns the command to continue with; "" for a user's model, whose name is not a workload.

    Args:
        advice: What was found.
        width: Characters of a line.
    """
    base = advice.base
    known = next((each for each in advice.ranked if not each.candidate.row.composed), None)
    if base.workload.model.facts.source or known is None:
        return ""
    first = known.candidate
    about = f"--workload {shlex.quote(base.workload.name)} --batch-size {base.batch_size}"
    if base.optimizer.name != next(iter(base.workload.learning_rates)):
        about += f" --optimizer {base.optimizer.name}"
    if base.weights is None:
        named = ",".join(each.candidate.cell for each in advice.best_of()[:_MEASURED])
        line = f"samestep compare --strategies {named} {about} --no-parity --out runs"
        line, by = (f"{line} --on slurm:nodes={advice.nodes}", ", here by Slurm") if advice.nodes > 1 else (line, "")
        return f"To measure the fastest layouts{by}, for `advise --calibrate runs`:\n{wrap_command(line, width)}"
    memory = f"{advice.machine.memory_bytes / 1e9:g}GB"
    line = f"samestep predict {first.cell} {about} --backend nccl --weights {base.weights} --device-memory {memory}"
    slower = (
        ""
        if known is advice.first
        else f", which samestep can run and which is {reasons.slower(advice.first, known)} slower,"
    )
    told = fill(f"To see what {first.layout if slower else 'the fastest'}{slower} holds and sends:", width)
    return f"{told}\n{wrap_command(line, width)}"


def say_model(base: Run) -> str:
    """Returns the name of a model, the number of its parameters, and how many of them a token uses.

    Args:
        base: The request.
    """
    model = base.workload.model
    every, active = num_params(model), num_active(model)
    met = f", of which a token meets {large_number(active)}" if active < every else ""
    return f"{base.workload.name} ({large_number(every)} parameters{met})"


def _caption(advice: Advice) -> str:
    base = advice.base
    numbers = base.dtype if base.weights is None else f"{base.weights} with {base.dtype} master weights"
    fitting = len(advice.search.fitting)
    fit = "1 layout fits" if fitting == 1 else f"{fitting:,} layouts fit"
    beside = "" if advice.first.candidate.knows_activations else _STATE
    return (
        f"Predicted, nothing was run: {say_model(base)} on "
        f"{count(advice.nodes, 'node')} of {advice.machine.title}; global batch {base.batch_size:,}, {base.optimizer.name}, "
        f"{numbers}. {fit}{beside}."
    )


def _chosen(advice: Advice) -> list[Timed]:
    """Returns the layouts of the table: the fastest of each strategy and mesh."""
    best: dict[str, Timed] = {}
    for each in advice.ranked:
        best.setdefault(each.layout, each)
    named = {each.layout for each in advice.best_of()}
    others = [layout for layout in best if layout not in named][: max(0, SHOWN - len(named))]
    return [each for layout, each in best.items() if layout in {*named, *others}]


COLUMNS: tuple[Column[Timed], ...] = (
    Column[Timed]("strategy", lambda each: each.candidate.row.title),
    Column[Timed]("mesh", lambda each: str(each.candidate.run.mesh)),
    Column[Timed]("schedule", lambda each: _schedule(each), drop_priority=3),
    Column[Timed]("micro-batch", lambda each: str(each.candidate.microbatch_size), drop_priority=1),
    Column[Timed]("recomputes", lambda each: "yes" if each.candidate.forward_passes > 1 else "no", drop_priority=2),
    Column[Timed]("step", lambda each: reasons.say_seconds(each.time.total)),
    Column[Timed]("needs", lambda each: decimal_size(each.candidate.needed_bytes)),
    Column[Timed]("waits", lambda each: percent(reasons.waits(each.time)).replace("less than ", "<")),
)

"""The columns of a layout."""


def _schedule(timed: Timed) -> str:
    run = timed.candidate.run
    return run.asked.schedule if run.mesh.parts("layers") > 1 else ""


def figures(timed: Timed, advice: Advice) -> dict[str, Scalar]:
    """Returns the columns of a layout in the formats for programs.

    Args:
        timed: A layout.
        advice: The advice that it belongs to.
    """
    candidate, time, cost = timed.candidate, timed.time, advice.cost_of(timed)
    return {
        "cell": candidate.cell,
        "strategy": f"{candidate.run.framework}:{candidate.row.title}",
        "mesh": str(candidate.run.mesh),
        "schedule": _schedule(timed),
        "microbatch_size": candidate.microbatch_size,
        "recomputes": candidate.forward_passes > 1,
        "needed_bytes": candidate.needed_bytes,
        "knows_activations": candidate.knows_activations,
        "step_seconds": time.total,
        "examples_per_second": cost.examples_per_second,
        "model_flops_utilization": cost.flops_utilization,
        **{f"{name}_seconds": seconds for name, seconds in time.parts().items()},
    }
