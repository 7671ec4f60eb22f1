"""The errors of samestep, each with its exit code. The message of an error is the one line that the user reads."""

import difflib
import itertools
import re
import signal
from collections.abc import Iterable, Sequence

MOST_CHARACTERS = 400
"""The most characters of the line that refuses a request, however long the values that it quotes."""
_LONG_WORD = 300
_KEPT_END = 150
_KERAS, COLOURS = "Exception encountered when calling ", re.compile(r"\x1b\[[0-9;]*m")
_MOST_GUESSES = 4


def printable(text: str, kept: str = "") -> str:
    """Escapes the characters that a terminal would obey instead of show: escape sequences, carriage returns, reversed directions.

    Args:
        text: Text that anybody may have written, for example into a file.
        kept: Characters of this kind that stay, such as the end of a line.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else repr(each)[1:-1] for each in text)


def one_line(message: str) -> str:
    """Makes a message one line that is short enough to read, since the values that it quotes may have any length and content."""
    shortened = message if len(message) <= 10_000 else f"{message[:5_000]} ... {message[-5_000:]}"
    words = (
        word if len(word) <= _LONG_WORD else f"{word[:60]}...{word[-20:]}" for word in printable(shortened).split(" ")
    )
    line = " ".join(words)
    if len(line) <= MOST_CHARACTERS:
        return line
    return f"{line[: MOST_CHARACTERS - _KEPT_END - 5]} ... {line[-_KEPT_END:]}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error, with the next ones if the first only names a layer of Keras or a graph."""
    try:
        lines = [line.strip() for line in COLOURS.sub("", str(error)).splitlines() if line.strip()] or [""]
    except Exception:  # of the user's own class
        lines = ["an error that cannot be printed"]
    return " ".join(lines[: 3 if lines[0].endswith(":") else 1 + lines[0].startswith(_KERAS)])


class SamestepError(Exception):
    """Any error of ours, with the exit code with which it ends a command."""

    exit_code = 1


class ConfigError(SamestepError, ValueError):
    """The request is wrong: the message names the value, the valid choices and the nearest one, in one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class Refused(ConfigError):
    """An engine refuses to take a run, because the request names something that it does not have, such as a partition."""


class Unavailable(SamestepError, RuntimeError):
    """The request is fine, but this machine lacks something: the message says what, and how to get it."""

    exit_code = 3

    def __init__(self, message: str, *others: str) -> None:
        """Makes one line from what is missing.

        Args:
            message: What the machine lacks.
            *others: What else it lacks; each is shortened alone, so none hides another.
        """
        super().__init__("; ".join(map(one_line, (message, *others))))


class ParityFailed(SamestepError, RuntimeError):
    """The run trained, but not the same step: the message names the first wrong step, the deviation and the likeliest cause."""

    exit_code = 4


class WorkerFailed(SamestepError, RuntimeError):
    """A process died, hung or never started: the message names its role, exit code, last lines and log."""

    exit_code = 1


class Diverged(SamestepError, RuntimeError):
    """The loss is not finite: the message names the step."""

    exit_code = 1


def signal_exit_code(interrupt: BaseException) -> int:
    """Returns the exit code of a command that a signal ended, as shells report it: 130 for Ctrl-C.

    Args:
        interrupt: The interrupt; its argument names the signal, unless it was Ctrl-C.
    """
    return 128 + signal.Signals[str(interrupt) or "SIGINT"]


ERRORS: dict[str, type[SamestepError]] = {
    error.__name__: error for error in (ConfigError, Refused, Unavailable, ParityFailed, WorkerFailed, Diverged)
}
"""The errors by name, so that the parent can raise what a worker wrote into `error.json`."""


def unknown(what: str, value: str, choices: Iterable[str], hint: str = "", owner: str = "") -> ConfigError:
    """Builds the error for a name that is not among the valid ones.

    Args:
        what: The kind of thing that was named, such as "strategy".
        value: What the user wrote.
        choices: Every valid name.
        hint: A further sentence.
        owner: A sentence on what does have that name. The name is then not a misspelling, and no other one is suggested.

    Returns:
        An error whose one line names the value, the nearest choice and all choices.
    """
    choices = [choice for choice in choices if choice != value]  # one that is valid only elsewhere is not offered
    nearest = [] if owner else _nearest(value[:_LONG_WORD], choices)
    guess = f"Did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
    return ConfigError(" ".join(filter(None, (f"unknown {what} '{value}'.", guess, owner, hint, _offer(choices)))))


def _nearest(value: str, choices: Sequence[str]) -> Sequence[str]:
    """Returns what a word may stand for: choices with its initials, as `--lr`, one slip away, with that word, or similar."""
    letters = value.lstrip("-").lower()
    words = {each: re.findall("[a-z0-9]+", each) for each in choices}
    initials = [each for each in choices if letters == "".join(word[0] for word in words[each])]
    spelled = {each.lstrip("-"): each for each in choices}
    least = 0.51 if value.startswith("-") else 0.5  # of the letters: `ft` for `tf` has half of them in order
    alike = difflib.get_close_matches(letters, spelled, n=max(1, len(spelled)), cutoff=least)
    order = list(spelled)  # decides if two are equally near
    nearest = sorted(
        (each for each in alike if _is_near(letters, each)), key=lambda each: (_slips(letters, each), order.index(each))
    )[:1]
    with_it = [each for each in choices if letters in words[each]]
    if initials and len(letters) > 1:
        return initials[:1]
    is_slip = nearest and _slips(letters, nearest[0]) <= 1
    return with_it[:_MOST_GUESSES] if with_it and not is_slip else [spelled[each] for each in nearest]


def _is_near(word: str, choice: str) -> bool:
    """Returns whether a word may have meant a choice: one begins with the other, or few slips lead to it."""
    slips = _slips(word, choice)
    is_beginning = min(len(word), len(choice)) > 2 and (word.startswith(choice) or choice.startswith(word))
    most = max(len(word), len(choice)) + 2 * (word[:1] == choice[:1])
    return is_beginning or slips <= 1 or 2 * slips < most


def _slips(word: str, choice: str) -> float:
    """Returns how many slips of the hand lead from a choice to a word.

    A letter that is doubled, or should be, is half a slip; one too many, one missing or two swapped are one; a wrong one is 1.5.
    """
    slips = {(0, 0): 0.0}
    for i, j in itertools.product(range(len(word) + 1), range(len(choice) + 1)):
        ways = [slips[i, j]] if i == j == 0 else []
        if i:
            ways.append(slips[i - 1, j] + (0.5 if word[i - 1] == word[i - 2 : i - 1] else 1.0))
        if j:
            ways.append(slips[i, j - 1] + (0.5 if choice[j - 1] == choice[j - 2 : j - 1] else 1.0))
        if i and j:
            ways.append(slips[i - 1, j - 1] + (0.0 if word[i - 1] == choice[j - 1] else 1.5))
        if i > 1 and j > 1 and word[i - 2 : i] == choice[j - 1] + choice[j - 2]:
            ways.append(slips[i - 2, j - 2] + 1.0)
        slips[i, j] = min(ways)
    return slips[len(word), len(choice)]


def count(number: int, noun: str) -> str:
    """Returns a number of things: "1 core", "2 cores", "3 batches".

    Args:
        number: The number.
        noun: The noun in the singular, whose plural is regular.
    """
    if number == 1:
        return f"1 {noun}"
    plural = re.sub("(?<=[^aeiou])y$", "ie", noun)
    return f"{number:,} {plural}{'e' if re.search('(s|x|ch|sh)$', plural) else ''}s"


def percent(share: float, digits: int = 0) -> str:
    """Returns a share in percent, as in 12 %.

    Args:
        share: The share; a small one is not rounded to zero.
        digits: The number of digits after the decimal point.
    """
    return "less than 1 %" if not digits and 0 < share < 0.01 else f"{100 * share:.{digits}f} %"


def name_some(names: Sequence[str], most: int) -> str:
    """Returns the first of some names as text, with the number of those left out.

    Args:
        names: The names.
        most: How many of them are named at most.
    """
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def _offer(choices: Sequence[str]) -> str:
    """Returns as many choices as a line has room for; the help lists all of them."""
    lengths = itertools.accumulate(len(choice) + 2 for choice in choices)
    return f"Choose from: {name_some(choices, sum(length <= MOST_CHARACTERS - _KEPT_END for length in lengths))}."
