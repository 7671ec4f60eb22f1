"""Forked processes in which a test changes what cannot be changed back: who it is, and what it may do."""

import ctypes
import json
import os
import traceback
from collections.abc import Callable

NOBODY = 65534
_PR_SET_DUMPABLE = 4


def in_child(does: Callable[[], object]) -> object:
    """What a function returns in a forked process, which has one thread."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(does()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return json.loads(said)


def become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)  # as a process is that was started by this user
