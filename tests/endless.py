"""A test that does not end: `pytest-timeout` raises in it, but what it then waits for on its way out may have no end either."""

import faulthandler
import os
from collections.abc import Generator

import pytest


class EndsEndlessTests:
    """The plugin that ends the process of a test at twice its limit, and prints where it was. xdist goes on in another one."""

    def __init__(self, config: pytest.Config) -> None:
        asked = config.getoption("timeout")  # as pytest-timeout: the flag, then the file
        self._limit = float(config.getini("timeout") if asked is None else asked)
        self._is_watched = config.getoption("usepdb")  # by somebody who takes time
        self._stderr = os.dup(2)  # what a test writes to the usual one is captured, and lost with the process

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        own = item.get_closest_marker("timeout")
        limit = self._limit if own is None else (*own.args, own.kwargs.get("timeout", self._limit))[0]
        if limit > 0 and not self._is_watched:
            faulthandler.dump_traceback_later(2 * limit, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
