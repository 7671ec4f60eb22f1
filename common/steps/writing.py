"""Writes a log of steps: each window when it ends, after those of earlier attempts at the run."""

import dataclasses
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from samestep.common.errors import ConfigError
from samestep.common.files.reading import read_bytes
from samestep.common.files.writing import reopen, replacing
from samestep.common.files.written import unseal
from samestep.common.steps.log import METRICS, METRICS_BYTES, Header, Log, Window, line_of, read_log


class LogWriter:
    """Adds windows to the log in a directory. Use it as a context manager."""

    def __init__(self, directory: Path, header: Header) -> None:
        """Opens or creates the log. A line that an earlier attempt did not finish is removed.

        Args:
            directory: The directory of the log.
            header: The header of the log.

        Raises:
            ConfigError: The existing log is damaged, or belongs to another program.
            OSError: The log cannot be written.
        """
        self._header: Header | None = header
        self._attempt, end = 1, None
        if os.path.lexists(path := directory / METRICS):
            before, end = read_log(directory), read_bytes(path, METRICS_BYTES).rfind(b"\n") + 1
            if before.header is not None and before.header.program != json.loads(json.dumps(header.program)):
                raise ConfigError(f"{path} is the log of another program; prepare another directory.")
            self._attempt += before.attempt
            unseal(path)
        self._file = os.fdopen(reopen(path), "r+b")
        if end is not None:
            self._file.truncate(end)
            self._file.seek(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, window: Window) -> None:
        """Writes a window at once; its attempt is that of this writer."""
        line, self._header = line_of(dataclasses.replace(window, attempt=self._attempt), self._header), None
        self._file.write((json.dumps(line) + "\n").encode())
        self._file.flush()


def write_log(directory: Path, log: Log) -> None:
    """Writes a complete log, or nothing at all.

    Args:
        directory: The directory of the log.
        log: The steps.
    """
    headers = [log.header, *[None] * len(log.windows)]
    lines = [json.dumps(line_of(window, header)) for window, header in zip(log.windows, headers, strict=False)]
    with replacing(directory / METRICS) as file:
        file.write(("\n".join(lines) + "\n").encode())
