"""Runs modules in separate processes, so their imports stay out of this one, and reads their answers."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Sequence

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.processes import module_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """A module to run. Its answer is the last line that it prints, in JSON.

    Attributes:
        module: The name of the module.
        arguments: Its command-line arguments.
        core: The core to which it is bound; None allows any.
        late: The error message if it takes too long.
        failed: The error message if it fails, followed by the last line of its stderr; `{code}` stands for its exit code.
    """

    module: str
    arguments: tuple[str, ...] = ()
    core: int | None = None
    late: str
    failed: str


def ask(questions: Sequence[Question], timeout_seconds: float) -> list[object]:
    """Runs several modules in parallel and returns their answers.

    Args:
        questions: The questions.
        timeout_seconds: How long each module may take.

    Returns:
        The answers in the order of the questions; None for a module that printed nothing.

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
