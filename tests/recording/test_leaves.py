"""Scripts without modules and optimizers are recorded by the leaves of their losses."""

from pathlib import Path

import pytest

from tests.recording.records import distance, loss, run_many

pytestmark = pytest.mark.torch
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "leaves": ("leaves.py", {}),
    "made": ("leaves.py made", {}),
    "asked": ("leaves.py grad", {}),
    "parts": ("leaves.py halves", {}),
    "moved": ("leaves.py", {"perturb": 1}),
}


def test_tensors_of_no_module_are_called_as_the_script_calls_them(tmp_path: Path) -> None:
    """Their gradients and updates are those of every step, whether the script writes them or makes new ones."""
    records = run_many(tmp_path, CASES)
    (header, steps), *others = (records[name][0] for name in ("leaves", "made", "asked"))
    assert [each.name for each in header.tensors] == ["weights.0", "weights.1"]
    assert [step.number for step in steps] == [-1, *range(5)]
    for _, made in others:
        assert [step.number for step in made] == [-1, *range(4)]  # nobody reads what the last step made
        for one, other in zip(steps, made, strict=False):
            assert one.losses == other.losses
            assert all((one.stats[phase] == other.stats[phase]).all() for phase in one.stats)
    moved = records["moved"][0][1]
    assert abs(loss(records["leaves"], 2) - loss(records["moved"], 2)) < 1e-5
    assert moved[1].stats["gradient"]["bits"].tolist() != steps[1].stats["gradient"]["bits"].tolist()
    assert distance(records["leaves"], records["parts"]) < 2e-6
