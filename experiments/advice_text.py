"""What is printed of an advice: the table, why the first layout is first, what the others wait for, what would change it."""

from samestep.common.evidence.costs.step_time import StepTime
from samestep.common.flags import Scalar
from samestep.common.workload.models.spec import num_params
from samestep.experiments.advice import Advice, Change, Timed
from samestep.experiments.formats import Case, Document
from samestep.experiments.step_times import PARTS, WORK
from samestep.experiments.text import Column, bullets, cells, count, fill, fit, github, large_number, screen_width

SHOWN = 8
"""Lines of the table, each with the fastest layout of a strategy and a mesh; the best of every strategy is among them."""
_STATE = " for parameters, gradients and optimizer state; what the layers keep beside these is not predicted"
_EQUAL = 0.01
"""What is slower by less is as fast."""
_TOLD = 0.1
"""The share of a difference from which a part of it is worth a word."""


def document(advice: Advice) -> Document:
    """Everything, in a form of which any format can be made.

    Args:
        advice: What was found.
    """
    record = {
        "workload": advice.base.workload.name,
        "parameters": num_params(advice.base.workload.model),
        "machine": advice.machine,
        "nodes": advice.nodes,
        "global_batch_size": advice.base.batch_size,
        "layouts": [_figures(each) for each in advice.ranked],
        "without_room": {name: each.needed_bytes for name, each in advice.search.closest.items()},
        "not_possible": advice.search.refused,
        "validation": advice.validation,
        "calibration": advice.calibration,
        "changes": [
            {
                "what": each.what,
                "first": each.first and _figures(each.first),
                "before": each.before and _figures(each.before),
            }
            for each in advice.changes
        ],
    }
    rows = [_figures(each) for each in advice.ranked]
    return Document(
        "samestep advise", lambda: report(advice), record, rows, [Case(each.layout) for each in advice.ranked]
    )


def report(advice: Advice) -> str:
    """Everything that people read."""
    width = screen_width()
    parts = [
        fill(_caption(advice), width),
        _table(advice, width),
        fill(f"First is {advice.first.candidate.cell}. {_why(advice)}", width),
        bullets([*_others(advice), *_impossible(advice)], width),
        fill(_trust(advice), width),
        "What would change it:\n" + bullets((_changed(each, advice.first) for each in advice.changes), width),
    ]
    return "\n\n".join(filter(None, parts))


def _trust(advice: Advice) -> str:
    """How far such predictions were off, and which layouts that leaves undecided."""
    if advice.calibration:
        return f"{advice.calibration} Layouts that are closer to the first than that are undecided: measure them."
    if (found := advice.validation) is None:
        return "Nothing measured says how far these seconds are off: measure the first layouts, and give the runs to --calibrate."
    close = {each.layout for each in advice.ranked if each.time.total <= (1 + found.mape) * advice.first.time.total}
    rows = "one node" if advice.nodes == 1 else "many nodes"
    return (
        f"Such predictions were off by {found.mape:.1%} on average over {found.rows} measured steps on {rows} of A100, to "
        f"which no constant was fitted; in {count(found.problems, 'choice')} the layout ranked first was "
        f"{found.regret:.1%} slower than the fastest. "
        f"That leaves {count(len(close), 'layout')} undecided, within {found.mape:.1%} of the first."
    ).replace("%", " %")


def _caption(advice: Advice) -> str:
    base = advice.base
    numbers = base.dtype if base.weights is None else f"{base.weights} with {base.dtype} master weights"
    beside = "" if advice.first.candidate.knows_activations else _STATE
    return (
        f"Predicted, nothing was run: {base.workload.name} ({large_number(num_params(base.workload.model))} parameters) on "
        f"{count(advice.nodes, 'node')} of {advice.machine.title}; global batch {base.batch_size:,}, {base.optimizer.name}, "
        f"{numbers}. {len(advice.search.fitting):,} layouts have room{beside}."
    )


def _table(advice: Advice, width: int) -> str:
    """The fastest layout of each strategy and mesh."""
    best: dict[str, Timed] = {}
    for each in advice.ranked:
        best.setdefault(each.layout, each)
    named = {each.layout for each in advice.best_of()}
    room = SHOWN - len(named)
    chosen = []
    for layout, each in best.items():
        if layout in named:
            chosen.append(each)
        elif room > 0:
            chosen.append(each)
            room -= 1
    return github(*cells(fit(_COLUMNS, chosen, width), chosen), width)


_COLUMNS = (
    Column[Timed]("strategy", lambda each: each.candidate.row.strategy),
    Column[Timed]("mesh", lambda each: str(each.candidate.run.mesh)),
    Column[Timed]("schedule", lambda each: _schedule(each), gives_way=3),
    Column[Timed]("micro-batch", lambda each: str(each.candidate.microbatch_size), gives_way=1),
    Column[Timed]("recomputes", lambda each: "yes" if each.candidate.recomputes else "no", gives_way=2),
    Column[Timed]("step s", lambda each: f"{each.time.total:#.3g}"),
    Column[Timed]("needs GB", lambda each: f"{each.candidate.needed_bytes / 1e9:.1f}"),
    Column[Timed]("waits", lambda each: f"{_waits(each.time):.0%}".replace("%", " %")),
)


def _schedule(timed: Timed) -> str:
    return timed.candidate.run.options.schedule if timed.candidate.run.mesh.axis("pipe") > 1 else ""


def _recomputing(timed: Timed) -> str:
    return ", with recomputation" if timed.candidate.recomputes else ""


def _waits(time: StepTime) -> float:
    """The share of a step in which a device does not compute."""
    return 1 - sum(time.parts()[name] for name in WORK) / time.total


def _why(advice: Advice) -> str:
    """Where the first layout gains on the best of the next strategy, and what it loses there."""
    first, others = advice.first, advice.best_of([advice.first.candidate.row.strategy])
    rate, waiting = advice.base.batch_size / first.time.total, _percent(_waits(first.time))
    told = f"It takes {_seconds(first.time.total)} a step, {rate:,.3g} examples a second, and waits {waiting} of it."
    if not others:
        return told
    second = others[0]
    if second.time.total < (1 + _EQUAL) * first.time.total:
        return f"{told} The next strategy, {second.layout}, is as fast: less than 1 % slower."
    gains = _differences(first.time, second.time, 1)
    losses = _differences(first.time, second.time, -1)
    lost = f", which outweighs {losses} more here" if losses else ""
    return (
        f"{told} The next strategy, {second.layout}, is {_slower(first, second)} slower: it takes {gains} more{lost}."
    )


def _differences(first: StepTime, second: StepTime, sign: int) -> str:
    """The parts of a step that take longer in one of two layouts."""
    apart = {name: sign * (seconds - first.parts()[name]) for name, seconds in second.parts().items()}
    told = {name: more for name, more in apart.items() if more > _TOLD * max(map(abs, apart.values()))}
    return " and ".join(
        f"{_seconds(more)} for {PARTS[name]}" for name, more in sorted(told.items(), key=lambda each: -each[1])
    )


def _others(advice: Advice) -> list[str]:
    """What the best layouts of the other strategies wait for."""
    told = []
    for each in advice.best_of([advice.first.candidate.row.strategy]):
        parts = {name: seconds / each.time.total for name, seconds in each.time.parts().items() if name not in WORK}
        if (waits := _waits(each.time)) < _EQUAL:
            told.append(f"{each.layout}, {_slower(advice.first, each)} slower: waits for next to nothing.")
            continue
        longest = max(parts, key=lambda name: parts[name])
        recomputes = ", and computes activations again" if each.candidate.recomputes else ""
        told.append(
            f"{each.layout}, {_slower(advice.first, each)} slower: waits {_percent(waits)} of its step, most of it for "
            f"{PARTS[longest]}{recomputes}."
        )
    return told


def _impossible(advice: Advice) -> list[str]:
    memory = advice.machine.memory_bytes / 1e9
    told = [
        f"{each.run.name} has no room: a device needs at least {each.needed_bytes / 1e9:,.0f} GB and has {memory:,.0f}."
        for each in advice.search.closest.values()
    ]
    together: dict[str, list[str]] = {}
    for name, why in advice.search.refused.items():
        together.setdefault(why, []).append(f"torch:{name}")
    return told + [f"{', '.join(names)} cannot take it: {why.rstrip('.')}." for why, names in together.items()]


def _changed(change: Change, first: Timed) -> str:
    """What is first under other conditions, as a sentence."""
    what = change.what[0].upper() + change.what[1:]
    if change.first is None:
        return f"{what}, nothing has room."
    if change.first.layout == first.layout:
        return f"{what}, it stays first: {_seconds(change.first.time.total)} a step."
    before = f"it would take {_seconds(change.before.time.total)}" if change.before else "it has no room"
    return f"{what}, {change.first.layout} is first{_recomputing(change.first)}: {_seconds(change.first.time.total)}; {before}."


def _slower(first: Timed, other: Timed) -> str:
    return _percent(other.time.total / first.time.total - 1)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _figures(timed: Timed) -> dict[str, Scalar]:
    """The columns for programs."""
    candidate, time = timed.candidate, timed.time
    return {
        "cell": candidate.cell,
        "strategy": candidate.run.name,
        "mesh": str(candidate.run.mesh),
        "schedule": _schedule(timed),
        "microbatch_size": candidate.microbatch_size,
        "recomputes": candidate.recomputes,
        "needed_bytes": candidate.needed_bytes,
        "knows_activations": candidate.knows_activations,
        "step_seconds": time.total,
        **{f"{name}_seconds": seconds for name, seconds in time.parts().items()},
    }
