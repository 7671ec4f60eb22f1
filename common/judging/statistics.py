"""Prediction intervals for a repetition, and tests of paired differences, on plain numbers.

None of them uses single windows. The windows of one run share where its processes were placed and what else the machine did,
so they say little about the next run. Each run counts as one value, the median of its windows. The variance between runs
includes that between windows.
"""

import math
import statistics
from collections.abc import Sequence

# scipy.stats has these tests as well, and a test compares the two. Importing it takes 0.9 s of CPU and 47 MiB: printing a saved
# table would take 2.2 s instead of 1.3 s. So the distributions come from scipy.special, which each function imports when it
# needs it, because --help does not.


def prediction_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Computes the median, and the interval in which the median of equally many later values will lie.

    Two medians of n normal values each differ by a normal value whose variance is twice that of one median, at most
    pi / 2 * s^2 / n. With s estimated from the n values, its quantile is Student's with n - 1 degrees of freedom. The
    interval is a little too wide for few values, whose median has a smaller variance: for 2 to 20 normal values it holds 95.5 to
    97 %. Two values give a very wide interval, and rightly: nothing else is known of how far a third may lie.

    Args:
        values: At least two values, each from a separate trial. Speeds enter as their logarithms.
        confidence: The probability that the interval holds the later median.

    Returns:
        Median, low, high.

    Raises:
        ValueError: There are fewer than two values, or one is not finite.

    References:
        Hahn and Meeker, Statistical Intervals, section 4.8 (for the mean of later values).
        Cramer, Mathematical Methods of Statistics, section 28.5 (the variance of a median).
    """
    _check(values)
    count, middle = len(values), statistics.median(values)
    half = student_quantile(count - 1, confidence) * statistics.stdev(values) * math.sqrt(math.pi / count)
    return middle, middle - half, middle + half


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Computes the mean, and Student's confidence interval for the true mean.

    Args:
        values: At least two values, each from a separate trial.
        confidence: The probability that the interval holds the true mean.

    Returns:
        Mean, low, high.

    Raises:
        ValueError: There are fewer than two values, or one is not finite.
    """
    _check(values)
    count, mean = len(values), statistics.fmean(values)
    half = student_quantile(count - 1, confidence) * statistics.stdev(values) / math.sqrt(count)
    return mean, mean - half, mean + half


def p_value(values: Sequence[float]) -> float:
    """Computes the two-sided p-value of Student's test that the true mean is zero.

    The values are differences within pairs. If both values of a pair scatter alike, their difference is symmetric about its mean,
    however skewed each value is. For symmetric values with heavy tails, the test errs on the safe side. A test by ranks or by
    flipping signs assumes less, but has only 2^n outcomes. With five pairs its smallest p-value is 2 / 2^5 = 0.06, so it could
    never find anything; corrected for twenty rows, it could find nothing with fewer than ten pairs.

    Args:
        values: At least two differences that scatter.

    Raises:
        ValueError: There are fewer than two values, one is not finite, or all are equal. Measured values never are.

    References:
        Student, The Probable Error of a Mean, 1908. Efron, Student's t-test under symmetry conditions, 1969.
    """
    _check(values)
    count, deviation = len(values), statistics.stdev(values)
    if deviation == 0:
        raise ValueError(f"{count} equal differences have no scatter to test against")
    return _two_sided(count - 1, statistics.fmean(values) / (deviation / math.sqrt(count)))


def welch(
    values: Sequence[float], others: Sequence[float], confidence: float = 0.95
) -> tuple[float, float, float] | None:
    """Tests whether the means of two independent samples differ.

    Args:
        values: At least two values, each from a separate trial.
        others: The other sample, which may scatter more or less.
        confidence: The probability that the interval holds the true difference.

    Returns:
        Low and high of the difference of the means, and the two-sided p-value that there is none; None if neither scatters.

    Raises:
        ValueError: Either sample has fewer than two values, or a value is not finite.

    References:
        Welch, The Generalization of "Student's" Problem when Several Different Population Variances Are Involved, 1947.
    """
    _check(values)
    _check(others)
    variances = [statistics.variance(sample) / len(sample) for sample in (values, others)]
    squares = sum(variance**2 / (len(sample) - 1) for variance, sample in zip(variances, (values, others), strict=True))
    if not squares:
        return None
    difference, error = statistics.fmean(values) - statistics.fmean(others), math.sqrt(sum(variances))
    degrees = sum(variances) ** 2 / squares
    half = student_quantile(degrees, confidence) * error
    return difference - half, difference + half, _two_sided(degrees, difference / error)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects several p-values together: the chance that any true hypothesis is rejected stays below the level.

    Args:
        p_values: The p-value of each hypothesis.

    Returns:
        The corrected p-values, in the same order.

    References:
        Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


def student_quantile(degrees: float, confidence: float) -> float:
    """Computes how many standard errors Student's confidence interval extends to either side.

    Args:
        degrees: The degrees of freedom.
        confidence: The probability that the interval holds the true value.
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))


def _two_sided(degrees: float, errors: float) -> float:
    """Returns the chance that Student's t is at least as many standard errors from zero."""
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -abs(errors)))


def _check(values: Sequence[float]) -> None:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        raise ValueError(f"two finite values or more are needed, not {list(values)}")
