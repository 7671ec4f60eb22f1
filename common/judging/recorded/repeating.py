"""Whether a command that is run again, as it was, still takes the steps of its record: if not, its reruns say nothing of it."""

from collections.abc import Callable, Sequence

from samestep.common.errors import ConfigError
from samestep.common.judging.recorded.judge import judge, judge_unless_rounded
from samestep.common.judging.recorded.measured import measure
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.steps.recorded_run import RecordedRun


def judge_again(
    run: RecordedRun, again: RecordedRun, perturb: Callable[[], Sequence[RecordedRun]]
) -> RecordedVerdict | None:
    """Judges whether a run took the steps of its record; None if the two have nothing in common.

    Args:
        run: What was recorded.
        again: The first steps of its command, run again.
        perturb: Runs it again from perturbed weights. That is needed where another machine, or another order of sums in
            threads, rounds otherwise, which a step may amplify: Adam's first moves a number by the sign of its gradient.
    """
    try:
        verdict = judge_unless_rounded(run, again)
    except ConfigError:
        return None
    if verdict is not None and (verdict.first is None or verdict.is_exact):
        return verdict
    pairing = pair(again, run)
    return judge(again, run, measure(again, perturb(), pairing), pairing)
