"""How a command runs and ends: by one of our errors, by a signal, or because its output cannot be written."""

import contextlib
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

from samestep.common.errors import ConfigError, SamestepError, printable, signal_exit_code
from samestep.common.runtime.parent.processes import started
from samestep.experiments.printing.text import fill

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end a command in an orderly way: Ctrl-C, `docker stop`, a scheduler, a terminal that is closed,
Ctrl-\\\\."""

_UNTOUCHED = (signal.SIG_DFL, signal.default_int_handler)
_AGAIN, _AGAIN_SECONDS = signal.SIGALRM, 0.01
"""The timer's signal, and the time after which Python has left code in which it ignores exceptions."""


def run_command(command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits; our own errors become one line and their exit code.

    Args:
        command: Takes the arguments, returns the exit code.
        arguments: The arguments; by default the process's own.
    """
    # The oracle's products are small: a second thread would only wait for the first, for a long time on a busy machine. NumPy
    # is not imported yet, and processes that train get their number of threads elsewhere.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with report_errors() as code:
        check_environment()
        code[0] = command(sys.argv[1:] if arguments is None else arguments)
    sys.exit(code[0])


@contextlib.contextmanager
def report_errors() -> Iterator[list[int]]:
    """Turns anything that ends a command into one line and an exit code; yields the list that holds the code."""
    code, before = [0], [*started.STARTED]
    _open_streams()
    handlers = {number: signal.getsignal(number) for number in (*SIGNALS, _AGAIN)}
    ignored, sys.unraisablehook = sys.unraisablehook, _come_again
    for number in SIGNALS:
        if handlers[number] in _UNTOUCHED:  # otherwise somebody wants it ignored, as nohup does
            signal.signal(number, _interrupt)
    try:
        yield code
        sys.stdout.flush()
    except SamestepError as error:
        print(_wrapped(f"samestep: {error}"), file=sys.stderr)
        _print_notes(error)
        code[0] = error.exit_code
    except KeyboardInterrupt as interrupt:
        how = f"ended by {interrupt}" if interrupt.args else "interrupted"
        _print_notes(interrupt)
        print(f"samestep: {how}; {_what_is_left(before) or 'nothing is left running.'}", file=sys.stderr)
        _leave(signal_exit_code(interrupt))
    except _Unprintable as error:
        if error.errno != errno.EPIPE:  # `| head` has read all it wants
            print(f"samestep: what was found cannot be printed: {error.strerror}", file=sys.stderr)
        code[0] = 1
    finally:
        if left := _what_is_left(before):
            print(f"samestep: {left}", file=sys.stderr)
        sys.unraisablehook = ignored
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _print_notes(end: BaseException) -> None:
    """Prints what was added to what ends a command, such as the line that continues a run."""
    for note in getattr(end, "__notes__", ()):
        print(f"samestep: {note}", file=sys.stderr)


def _wrapped(line: str) -> str:
    """Returns an error wrapped between words for a terminal; for a pipe or a file it stays one line."""
    return fill(line, indent="  ") if sys.stderr.isatty() else line


def _leave(code: int) -> NoReturn:
    """Ends this process at once: Python's teardown forgets the handlers of signals, and may crash in a half-made import."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _what_is_left(before: Sequence[started.Started]) -> str:
    """Ends the processes started since `before`, and names those that are still running; "" if none is."""
    left = ", ".join(f"{process.pid} ({process.name})" for process in started.end_all(before))
    jobs = " and ".join(started.UNENDED)
    said = [
        f"{jobs} could not be cancelled and may still run." if jobs else "",
        f"these processes could not be ended and are still running: {left}." if left else "",
    ]
    return " ".join(filter(None, said))


def check_environment() -> None:
    """Refuses environment variables on which a package that we import would end in a traceback.

    Raises:
        ConfigError: A variable has a value that the package does not accept.
    """
    # NumPy (2.3) reads it as a number while it is imported: numpy.f2py, through SciPy.
    if not re.fullmatch("[0-9]{1,18}", text := os.environ.get("SOURCE_DATE_EPOCH", "0")):
        raise ConfigError(
            f"SOURCE_DATE_EPOCH is '{text}' in the environment; set it to a whole number of seconds, or unset it."
        )


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupts the command. Further signals are ignored, so they do not disturb the cleanup."""
    for each in SIGNALS:
        signal.signal(each, lambda *_: None)  # SIG_IGN would print a complaint about one that has just come
    raise KeyboardInterrupt(*[] if number == signal.SIGINT else [signal.Signals(number).name])


def _come_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Raises an interrupt again that came where Python ignores exceptions, such as a callback of the import system."""
    if not isinstance(ignored.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    arguments = ignored.exc_value.args

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(*arguments)

    signal.signal(_AGAIN, interrupt)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


class _Unprintable(OSError):
    """The error of a stdout that can no longer be written to."""


class _Stdout(io.FileIO):
    """Stdout, for the result of a command. After a failed write it discards output, so Python does not retry at exit."""

    def write(self, data: "ReadableBuffer") -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise _Unprintable(error.errno, error.strerror) from None


class _Stderr(io.FileIO):
    """Stderr, for the progress of a run. A failed write is ignored, since the run itself is not affected."""

    def write(self, data: "ReadableBuffer") -> int | None:
        with contextlib.suppress(OSError):
            return super().write(data)
        return memoryview(data).nbytes


class _Shown(io.TextIOWrapper):
    """A stream to a terminal. Printed text may come from files, so it must not move the cursor or set the title."""

    def write(self, text: str) -> int:
        lines = (printable(line, "\t") for line in text.split("\n"))
        # Unless the user has said no (https://no-color.org).
        if self.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
            from samestep.experiments.cli.colours import coloured  # here: files and pipes get none

            return super().write("\n".join(map(coloured, lines)))
        return super().write("\n".join(lines))


def drawing_stream() -> TextIO:
    """Returns stderr for output that moves the cursor on purpose, such as a progress bar."""
    if not isinstance(sys.stderr, _Shown):  # the stream of another program that calls our functions
        return sys.stderr
    return _text(io.TextIOWrapper, _Stderr(2, "w", closefd=False), sys.stderr)


def _open_streams() -> None:
    """Makes the standard streams safe to print to: none stays closed, and characters that cannot be printed are escaped."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # it takes the number of the first closed stream
        pass
    os.close(descriptor)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Shown, _Stdout(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Shown, _Stderr(2, "w", closefd=False), sys.stderr)


def _text(kind: type[io.TextIOWrapper], raw: io.FileIO, replaced: TextIO | None) -> TextIO:
    encoding = replaced.encoding if replaced else "utf-8"
    lines = raw.isatty() or raw.fileno() == 2
    return kind(io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=lines)
