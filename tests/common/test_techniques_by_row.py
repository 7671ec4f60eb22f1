"""Every row with every technique: either it takes it, or one line says why not; nothing is started."""

import itertools
import re

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.flags import flags, spell_flag
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.strategy import StrategyInfo
from samestep.common.techniques import Techniques
from samestep.common.techniques.decayed.flag import ALL
from tests.cells import every_row, usual

GIVEN = {
    "accumulation_steps": {"accumulation_steps": 2},
    "clip_norm": {"clip_norm": 1.0},
    "learning_rate_schedule": {"learning_rate_schedule": "cosine"},
    "warmup_steps": {"warmup_steps": 2},
    "decay_steps": {"learning_rate_schedule": "linear", "decay_steps": 9},
    "decayed": {"decayed": "matrices"},
    "vector_rate": {"vector_rate": 2.0},
    "precision": {"precision": "bf16"},
    "recompute": {"recompute": True},
    "compile": {"compile": True},
    "overlap": {"overlap": False},
    "compress": {"compress": "int8"},
    "compress_rank": {"compress": "powersgd", "compress_rank": 2},
    "compress_warmup_steps": {"compress": "powersgd", "compress_warmup_steps": 2},
    "fixed_order": {"fixed_order": 4},
    "local_steps": {"local_steps": 3},
    "outer_rate": {"local_steps": 3, "outer_rate": 0.7},
    "outer_momentum": {"local_steps": 3, "outer_momentum": 0.9},
}
"""A value of each technique, with what it needs beside it."""
OF_OWN_MODELS = {"keep_dtypes"}
"""What a user's model alone can ask for; tests/torch_impl/test_kept_dtypes.py has it."""
UNORDERED = {"accumulation_steps", *(name for name in GIVEN if name.startswith("compress"))}
ALONE = {"local_steps", "outer_rate", "outer_momentum"}
"""What leaves no exchange of gradients to the others; tests/common/techniques/test_local_steps.py has the lines."""
UNORDERED_IN_SHARDS = {"clip_norm", "precision"}
"""What a fixed order refuses; tests/parity/test_fixed_order.py has the lines."""


def asked(framework: str, row: StrategyInfo, **techniques: object) -> RunConfig:
    devices = 2 if row.axes else 1
    given = Techniques(**techniques)
    optimizer = "adamw" if given.decayed != ALL else "sgd"  # which has no decay
    return RunConfig(
        framework,
        row.name,
        usual(row),
        devices,
        dtype=row.dtypes[0],
        batch_size=48,
        steps=9,
        optimizer=optimizer,
        techniques=given,
    )


def test_every_technique_is_walked() -> None:
    assert {*GIVEN, *OF_OWN_MODELS} == set(flags(Techniques))


@pytest.mark.parametrize(("framework", "row"), every_row(), ids=lambda value: getattr(value, "name", value))
def test_dtypes_are_kept_of_a_users_model_alone(framework: str, row: StrategyInfo) -> None:
    why = row.refuses.get("keep_dtypes", "is bfloat16 in its file")
    with pytest.raises(ConfigError, match=f"{re.escape(why)}; leave"):
        parse(asked(framework, row, keep_dtypes=True))


@pytest.mark.parametrize("technique", GIVEN)
@pytest.mark.parametrize(("framework", "row"), every_row(), ids=lambda value: getattr(value, "name", value))
def test_a_row_takes_a_technique_or_says_why_not(framework: str, row: StrategyInfo, technique: str) -> None:
    config = asked(framework, row, **GIVEN[technique])
    if technique not in row.refuses:
        run = parse(config)
        assert all(getattr(run.techniques, name) == value for name, value in GIVEN[technique].items())
        return
    with pytest.raises(ConfigError) as caught:
        parse(config)
    flag = "--no-overlap" if technique == "overlap" else spell_flag(technique)
    assert str(caught.value) == (
        f"{framework}:{row.name} does not take {flag}: {row.refuses[technique]}; leave out {flag}."
    )


@pytest.mark.parametrize(("framework", "row"), every_row(), ids=lambda value: getattr(value, "name", value))
def test_techniques_do_not_exclude_each_other(framework: str, row: StrategyInfo) -> None:
    taken = [name for name in GIVEN if name not in row.refuses]
    unordered = UNORDERED | (UNORDERED_IN_SHARDS if "shard" in row.axes else set())
    for one, other in itertools.combinations(taken, 2):
        is_alone = len({one, other} & ALONE) == 1 and {one, other} & (
            UNORDERED - {"accumulation_steps"} | {"fixed_order"}
        )
        if not is_alone and (other != "fixed_order" or one not in unordered):
            parse(asked(framework, row, **{**GIVEN[one], **GIVEN[other]}))


def test_a_model_of_two_segments_has_nothing_to_recompute() -> None:
    with pytest.raises(ConfigError, match=r"inner segments of a model again, and digits-mlp.* has none"):
        parse(RunConfig(workload="digits-mlp+layers=2", techniques=Techniques(recompute=True)))


def test_one_device_has_nothing_to_compress() -> None:
    with pytest.raises(
        ConfigError, match="--compress int8 is for what devices exchange, and there is one device; add --devices 2"
    ):
        parse(RunConfig("torch", "ddp", "synthetic-mlp", techniques=Techniques(compress="int8")))


@pytest.mark.parametrize(
    "technique", [{"compress_rank": 2}, {"compress_warmup_steps": 2}, {"compress_warmup_steps": 2, "compress": "int8"}]
)
def test_other_methods_have_no_options_of_powersgd(technique: dict[str, object]) -> None:
    line = f"{spell_flag(next(iter(technique)))} 2 is an option of powersgd; add --compress powersgd, or leave it out."
    with pytest.raises(ConfigError, match=line):
        parse(RunConfig("torch", "ddp", "synthetic-mlp", 2, techniques=Techniques(**technique)))


@pytest.mark.torch
def test_a_run_is_longer_than_its_warm_up() -> None:
    def checked(warm_up: int) -> None:
        techniques = Techniques(compress="powersgd", compress_warmup_steps=warm_up)
        config = RunConfig("torch", "ddp", "synthetic-mlp", 2, steps=9, techniques=techniques)
        check_launch(parse(config), launch_of(config))

    checked(8)
    with pytest.raises(
        ConfigError, match="--compress-warmup-steps 9 leaves none of 9 steps to powersgd; give at most 8, or leave"
    ):
        checked(9)


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        (
            "tf:mirrored+overlap=true",
            "tf:mirrored exchanges gradients all together with --compress int8; leave out --overlap",
        ),
        ("tf:multi_worker_mirrored+overlap=true", "exchanges gradients all together with --compress int8"),
        ("tf:mirrored+reduce=ring", "--compress int8 exchanges in its own way; leave out --reduce ring"),
    ],
)
def test_what_compression_replaces_is_not_asked_for(cell: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        parse(Cell.parse(f"{cell}+compress=int8").apply_to(RunConfig(workload="synthetic-mlp", devices=2)))


@pytest.mark.torch
def test_torch_compiles_nothing_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig(workload="synthetic-mlp", techniques=Techniques(compile=True))
    run, launch = parse(config), launch_of(config)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    check_launch(run, launch)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Unavailable, match=r"no g\+\+ or clang\+\+: apt install g\+\+, or set CXX"):
        check_launch(run, launch)
    monkeypatch.setenv("CXX", "/opt/cxx")
    with pytest.raises(Unavailable, match="there is no /opt/cxx"):
        check_launch(run, launch)
