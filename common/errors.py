"""What can go wrong, each with its exit code. The message of an error is the one line that the user reads."""

import difflib
from collections.abc import Iterable


class SamestepError(Exception):
    """Any error of ours, with the exit code that it ends a command with."""

    exit_code = 1


class ConfigError(SamestepError, ValueError):
    """The request is wrong: the message names the value, the valid choices and the nearest one, in one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(message.replace("\n", "\\n"))  # a value that was given may hold several


class Unavailable(SamestepError, RuntimeError):
    """The request is fine, but this machine lacks something: the message says what, and how to get it."""

    exit_code = 3


class ParityFailed(SamestepError, RuntimeError):
    """It trained, but not the same step: the message names the first step, the deviation and the likeliest cause."""

    exit_code = 4


class WorkerFailed(SamestepError, RuntimeError):
    """A process died, hung or never started: the message names its role, exit code, last lines and log."""

    exit_code = 1


class Diverged(SamestepError, RuntimeError):
    """The loss is not finite: the message names the step."""

    exit_code = 1


ERRORS: dict[str, type[SamestepError]] = {
    error.__name__: error for error in (ConfigError, Unavailable, ParityFailed, WorkerFailed, Diverged)
}
"""By name, so that the parent raises what a worker wrote into `error.json`."""


def unknown(what: str, value: str, choices: Iterable[str], hint: str = "") -> ConfigError:
    """Builds the error for a name that is not among the valid ones.

    Args:
        what: The kind of thing that was named, such as "strategy".
        value: What the user wrote.
        choices: Every valid name.
        hint: A further sentence, such as who does have that name.

    Returns:
        An error whose one line names the value, the nearest choice and all choices.
    """
    choices = list(choices)
    nearest = difflib.get_close_matches(value, choices, n=1, cutoff=0.5)
    guess = f" Did you mean '{nearest[0]}'?" if nearest else ""
    return ConfigError(
        f"unknown {what} '{value}'.{guess}{' ' + hint if hint else ''} Choose from: {', '.join(choices)}."
    )
