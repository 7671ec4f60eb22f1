"""Whether a command that is run again, as it was, still takes the steps of its record: if not, its reruns say nothing of it."""

from collections.abc import Callable, Sequence

from samestep.common.errors import ConfigError
from samestep.common.judging.recorded.judge import judge, judge_unless_rounded
from samestep.common.judging.recorded.measured import measure
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import place
from samestep.common.steps.recorded_run import RecordedRun


def find_change(run: RecordedRun, again: RecordedRun, perturb: Callable[[], Sequence[RecordedRun]]) -> str:
    """Returns where a run first differs from its record; "" if it does not.

    Args:
        run: What was recorded.
        again: The first steps of its command, run again.
        perturb: Runs it again from perturbed weights. That is needed where another machine, or another order of sums in
            threads, rounds otherwise.
    """
    try:
        verdict = judge_unless_rounded(run, again)
        if verdict is None:
            pairing = pair(again, run)
            verdict = judge(again, run, measure(again, perturb(), pairing), pairing)
    except ConfigError:  # nothing in common
        return "no step or no tensor of the record is in it"
    return "" if verdict.first is None else place(verdict.first)
