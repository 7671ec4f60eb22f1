"""A test that does not end: `pytest-timeout` raises in it, but what it then waits for on its way out may have no end either."""

import faulthandler
import os
from collections.abc import Generator

import pytest


class EndsEndlessTests:
    """The plugin that ends the process of a test at twice its limit, and prints where it was. xdist goes on in another one."""

    def __init__(self, config: pytest.Config) -> None:
        self._limit = float(config.getini("timeout"))
        self._stderr = os.dup(2)  # what a test writes to the usual one is captured, and lost with the process

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        own = item.get_closest_marker("timeout")
        faulthandler.dump_traceback_later(2 * (own.args[0] if own else self._limit), exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
