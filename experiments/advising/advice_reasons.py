"""The sentences of advice: why the first layout is first, what others wait for, how far to trust it, what would change it."""

from collections.abc import Iterable

from samestep.common.errors import count, percent
from samestep.common.flags import spell_flag
from samestep.common.seconds.machine import REFERENCE, load_machine
from samestep.common.seconds.published_rows import llm_foundry, llm_foundry_a100, torchtitan
from samestep.common.seconds.step_time import StepTime
from samestep.common.seconds.validation import Score, score
from samestep.common.techniques.used import STEPS_ALONE
from samestep.experiments.advising import candidate_meshes as rows
from samestep.experiments.advising.advice import Advice
from samestep.experiments.advising.ranking import EQUAL, Change, Timed, longest_wait
from samestep.experiments.advising.step_times import PARTS, WORK
from samestep.experiments.printing.text import decimal_size, plain_number, sharing

_TOLD = 0.1
"""A part of a difference is mentioned if it is at least this share of it."""
_FULL, _ROOMY = 0.95, 0.9
"""Shares of the memory: above the first a layout may not fit after all, and below the second it should fit."""
_WITHIN = (*reversed(rows.ALONE), *rows.SPLIT, rows.SPREAD, *rows.COMPOSED)
_SIMPLE = tuple(row.title for row in (rows.ONE, *rows.WHOLE, rows.POSITIONS, rows.EXPERTS, *_WITHIN))
"""The strategies, the simplest first."""


def say_first(advice: Advice) -> str:
    """Returns the spelling of the first layout; for a composition that no strategy here runs, also what it adds to the strategy.

    Args:
        advice: What was found.
    """
    candidate = advice.first.candidate
    if not candidate.row.composed:
        return candidate.cell
    return f"{candidate.cell} + {candidate.row.composed}, which no row runs here: {candidate.row.about}"


def why(advice: Advice) -> str:
    """Returns where the first layout gains on the best of the next strategy, and what it loses there.

    Args:
        advice: What was found.
    """
    first, others = advice.first, advice.best_of([advice.first.candidate.row.title])
    rate, waiting = plain_number(advice.base.batch_size / first.time.total), percent(waits(first.time))
    told = (
        f"It takes {say_seconds(first.time.total)} a step ({rate} examples per second) and waits for {waiting} of it."
    )
    if not others:
        return told
    equal = [each for each in others if each.time.total < (1 + EQUAL) * first.time.total]
    if equal:
        simplest = min([first, *equal], key=lambda each: _SIMPLE.index(each.candidate.row.title))
        names, is_alone = _together(each.layout for each in equal), len(equal) == 1
        which = "the fastest" if simplest is first else "it" if is_alone else simplest.layout
        return (
            f"{told} {names} {'is' if is_alone else 'are'} less than 1 % slower, which no prediction can tell apart: "
            f"take {which}, the simple{'r' if is_alone else 'st'} one."
        )
    second = others[0]
    more, less = _differences(first.time, second.time, 1), _differences(first.time, second.time, -1)
    return (
        f"{told} The next strategy, {second.layout}, is {slower(first, second)} slower: it takes {_together(more)}"
        f"{f', but {_together(less)}' if less else ''}."
    )


def say_room(advice: Advice) -> str:
    """Returns what to use if the first layout, which fills the memory, does not fit after all; "" if it leaves room."""
    memory, needs = advice.machine.memory_bytes, advice.first.candidate.needed_bytes
    if needs <= _FULL * memory:
        return ""
    told = f"It needs {decimal_size(needs)} of {decimal_size(memory)}, and what the framework takes comes on top"
    roomy = next((each for each in advice.ranked if each.candidate.needed_bytes <= _ROOMY * memory), None)
    if roomy is None:
        return f"{told}; no layout leaves a tenth of the memory."
    size = decimal_size(roomy.candidate.needed_bytes)
    return f"{told}; if it runs out, {roomy.layout} needs {size} and is {slower(advice.first, roomy)} slower."


def _together(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _differences(first: StepTime, second: StepTime, sign: int) -> list[str]:
    """Returns the parts of a step that take longer (`sign` 1) or less time (`sign` -1) in the second of two layouts."""
    apart = {name: sign * (seconds - first.parts()[name]) for name, seconds in second.parts().items()}
    told = {name: seconds for name, seconds in apart.items() if seconds > _TOLD * max(map(abs, apart.values()))}
    word = "more" if sign > 0 else "less"
    return [
        f"{say_seconds(seconds)} {word} for {PARTS[name]}"
        for name, seconds in sorted(told.items(), key=lambda each: -each[1])
    ]


def others(advice: Advice) -> list[str]:
    """Returns what the best layouts of the other strategies wait for.

    Args:
        advice: What was found.
    """
    told = []
    for each in advice.best_of([advice.first.candidate.row.title]):
        twice = ", and recomputes activations" if each.candidate.forward_passes > 1 else ""
        if (waiting := waits(each.time)) < EQUAL:
            told.append(f"{each.layout}, {slower(advice.first, each)} slower: hardly waits{twice}.")
            continue
        told.append(
            f"{each.layout}, {slower(advice.first, each)} slower: waits for {percent(waiting)} of its step, mostly for "
            f"{PARTS[longest_wait(each.time)]}{twice}."
        )
    return told


def impossible(advice: Advice) -> list[str]:
    """Returns which strategies do not fit, and which cannot take the request.

    Args:
        advice: What was found.
    """
    memory = decimal_size(advice.machine.memory_bytes)
    told = [
        f"{each.run.framework}:{each.row.title} does not fit: a device needs at least {decimal_size(each.needed_bytes)} and "
        f"has {memory}."
        for each in advice.search.closest.values()
    ]
    together = sharing((reason, f"torch:{name}") for name, reason in advice.search.refused.items())
    return told + [f"{', '.join(names)} cannot take it: {reason.rstrip('.')}." for reason, names in together.items()]


def trust(advice: Advice) -> str:
    """Returns how far such predictions were off, and which layouts that leaves undecided.

    Args:
        advice: What was found.
    """
    if found := advice.calibration:
        return f"{found} {'' if found.error_left_out is None else _undecided(advice, found.error_left_out)}".strip()
    if advice.validation is None:
        return (
            "No measurement shows how accurate this is: measure the fastest layouts, and pass the runs to --calibrate."
        )
    off, rows = advice.validation, "one node" if advice.nodes == 1 else "many nodes"
    told = (
        f"Such predictions were off by {percent(off.mape, 1)} on average over {off.rows} measured steps on {rows} of A100s, to "
        f"which no constant was fitted; {_chosen(off)}."
    )
    if advice.machine.peak_flops_per_second == load_machine(REFERENCE).peak_flops_per_second:
        fused = score(llm_foundry_a100())
        told += (
            f" Those steps had no fused attention, which this advice assumes; predictions of {fused.rows} FSDP steps that had "
            f"it were off by {percent(fused.mape, 1)}."
        )
    else:
        other = score([each for each in (*llm_foundry(), *torchtitan()) if "seconds" in each.groups[0]])
        told += (
            f" Those are other GPUs; predictions of {other.rows} steps that others measured on H100s were off by "
            f"{percent(other.mape, 1)} on average. Trust the order more than the seconds."
        )
    return f"{told} {_undecided(advice, off.mape)}"


def _chosen(off: Score) -> str:
    """Returns what choices by predictions cost."""
    choices = count(off.problems, "choice")
    if not off.regret:
        return f"in {choices} the layout ranked first was the fastest"
    return f"in {choices} the layout ranked first was {percent(off.regret, 1)} slower than the fastest, on average"


def _undecided(advice: Advice, error: float) -> str:
    most = (1 + error) * advice.first.time.total
    close = {each.layout for each in advice.ranked if each.time.total <= most} - {advice.first.layout}
    if not close:
        return f"No other layout is within {percent(error, 1)} of the fastest."
    verb = "is" if len(close) == 1 else "are"
    return (
        f"{count(len(close), 'other layout')} {verb} within {percent(error, 1)} of the fastest, too close to tell apart: "
        "measure before you choose."
    )


def changed(change: Change, first: Timed) -> str:
    """Returns what is first under other conditions, as a sentence.

    Args:
        change: The conditions, and the layout that is first under them.
        first: The layout that is first without them.
    """
    what = change.what[0].upper() + change.what[1:]
    if change.first is None:
        return f"{what}, no layout fits."
    if change.first.layout == first.layout:
        return f"{what}, the same layout is fastest, with {say_seconds(change.first.time.total)} a step."
    if change.before and not change.is_clear:
        return f"{what}, the same layout is as fast as any, with {say_seconds(change.before.time.total)} a step."
    before = f"takes {say_seconds(change.before.time.total)}" if change.before else "does not fit"
    twice = ", with recomputation" if change.first.candidate.forward_passes > 1 else ""
    return (
        f"{what}, {change.first.layout} is fastest{twice}, with {say_seconds(change.first.time.total)} a step; "
        f"{first.layout} {before}."
    )


def steps_alone(advice: Advice) -> list[str]:
    """Returns what local steps would gain, if that is worth mentioning."""
    if (alone := advice.alone) is None:
        return []
    given = " ".join(f"{spell_flag(name)} {value:g}" for name, value in STEPS_ALONE.items())
    period = alone.candidate.run.techniques.steps_of_period
    return [
        f"With {given} (DiLoCo), {alone.layout} takes {say_seconds(alone.time.total)} a step where the fastest takes "
        f"{say_seconds(advice.first.time.total)}: its devices exchange once in {period} steps. That is another step, which "
        "trains other weights, so it is not ranked: compare its loss before you choose it."
    ]


def waits(time: StepTime) -> float:
    """Returns the share of a step in which a device does not compute.

    Args:
        time: The parts of the step.
    """
    return 1 - sum(time.parts()[name] for name in WORK) / time.total


def slower(first: Timed, other: Timed) -> str:
    """Returns by how much a layout is slower than the first, in percent.

    Args:
        first: The fastest layout.
        other: The layout that is compared with it.
    """
    return percent(other.time.total / first.time.total - 1)


def say_seconds(seconds: float) -> str:
    """Returns the time of a step, or of a part of one: 8.18 s, 1.54 ms."""
    return f"{plain_number(seconds)} s" if seconds >= 1 else f"{plain_number(1000 * seconds)} ms"
