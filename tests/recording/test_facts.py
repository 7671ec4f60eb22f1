"""What one record tells on its own, with scripts that take no time."""

from pathlib import Path

import pytest

from samestep.experiments.recording.facts import facts_of
from tests.recording.numpy_script import Script, run


@pytest.mark.parametrize("mistake", ["", "updated_again"])
def test_an_update_without_a_backward_pass_is_told(tmp_path: Path, mistake: str) -> None:
    found = [line for line in facts_of(run(Script(mistake=mistake), tmp_path / "record")) if "backward pass" in line]
    told = [
        "1 step had no backward pass, first step 1: the optimizer updated again with the gradients of the step before."
    ]
    assert found == (told if mistake else [])
