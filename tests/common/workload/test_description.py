"""Descriptions of users' models that an older version wrote are read as what they say."""

import dataclasses
import json
from pathlib import Path

import pytest

from samestep.common.workload.models.description import SPEC, Description, read_description
from samestep.common.workload.models.findings import TwoBytes
from samestep.common.workload.models.spec import ArraySpec


@pytest.mark.parametrize(
    ("old", "value", "new", "read"),
    [
        ("two_bytes", {"roundings": 7}, "rounded", TwoBytes(roundings=7)),
        ("batch_norms", ["bn"], "featured", {"batch_norm": ("bn",)}),
    ],
)
def test_what_a_field_was_called(tmp_path: Path, old: str, value: object, new: str, read: object) -> None:
    written = Description(
        source="m.py:model",
        framework="torch",
        frameworks=("torch",),
        loss="cross_entropy",
        metric="accuracy",
        params={},
        segments=(),
        blocks=(),
        inputs=ArraySpec((3,)),
        targets=ArraySpec((), 2),
    )
    held = {name: each for name, each in dataclasses.asdict(written).items() if name != new}
    (tmp_path / SPEC).write_text(json.dumps({**held, old: value}))
    assert read_description(str(tmp_path)) == dataclasses.replace(written, **{new: read})
