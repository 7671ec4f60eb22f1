"""Asks modules questions, each in a process of its own, so their imports stay there."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Sequence

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.processes import module_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A module to run, which answers with a line of JSON, the last that it prints.

    Attributes:
        module: Its name, below `samestep`.
        arguments: Its arguments.
        core: The core it is bound to; any, unless given.
        late: The message of the error if it takes too long.
        failed: The message of the error if it fails, before the last line that it wrote; `{code}` stands for its exit code.
    """

    module: str
    arguments: tuple[str, ...] = ()
    core: int | None = None
    late: str
    failed: str


def ask(questions: Sequence[Question], timeout_seconds: float) -> list[object]:
    """Asks several modules in parallel.

    Args:
        questions: The questions.
        timeout_seconds: How long each may take.

    Returns:
        The answers in the same order; None for a module that printed nothing.

    Raises:
        WorkerFailed: A process took too long or failed; the others are ended as well.
    """
    started: list[subprocess.Popen[str]] = []
    try:
        for each in questions:
            python, *line = module_line(each.module, *each.arguments)
            line = [python, "-W", "ignore", *line]
            started.append(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            if each.core is not None:
                os.sched_setaffinity(started[-1].pid, {each.core})
        return [_answer(*pair, timeout_seconds) for pair in zip(questions, started, strict=True)]
    finally:
        for process in started:
            process.kill()


def _answer(question: Question, process: "subprocess.Popen[str]", timeout_seconds: float) -> object:
    try:
        told, errors = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise WorkerFailed(question.late) from None
    if process.returncode:
        last = (errors.strip().splitlines() or ["it wrote nothing"])[-1]
        raise WorkerFailed(f"{question.failed.format(code=process.returncode)}: {last}")
    return json.loads(told.splitlines()[-1]) if told else None
