"""A user's code that closes what a run prints to."""

import os

import pytest

from samestep.common.errors import ConfigError
from samestep.common.workload.outputs import call_printing


@pytest.mark.parametrize(("number", "name"), [(1, "standard output"), (2, "standard error")])
def test_a_closed_output_is_opened_again_and_refused(number: int, name: str) -> None:
    kept = os.dup(number)
    try:
        with pytest.raises(ConfigError, match=f"it closes {name}, to which"):
            call_printing(os.close, number)
        with pytest.raises(ZeroDivisionError):  # its own error goes first
            call_printing(lambda: os.close(number) or 1 / 0)
        assert os.write(number, b"nowhere") == 7
    finally:
        os.dup2(kept, number)
        os.close(kept)
    assert call_printing(divmod, 7, 2) == (3, 1)
