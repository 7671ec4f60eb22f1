"""Each rank saves what it holds; together the files are the state, for any strategy of either framework, or are refused."""

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.files.writing import open_directory
from samestep.common.program import StatePiece, TrainState
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import COMMIT, FOLDER, Commit, find_checkpoints, read_saved
from samestep.common.runtime.checkpoints.rank_state import dump_pieces, name_of
from samestep.common.runtime.checkpoints.writing import begin_checkpoint, commit_sharded, write_own
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import STATE, read_state
from tests.cells import SIZED, every_row, slow, takes

COMMITTED = Commit(7, 0, 1, "program", "losses")
WHOLE = np.arange(12.0).reshape(4, 3)
Pieces = list[StatePiece]


def rows_of(start: int, stop: int) -> StatePiece:
    return StatePiece("params/w", (start, 0), (4, 3), WHOLE[start:stop])


def step() -> StatePiece:
    return StatePiece("step", (), (), np.asarray(7))


def saved(directory: Path, *of_ranks: Pieces) -> Path:
    """Has every rank write at the same time, each in a thread."""
    open_directory(directory)
    begin_checkpoint(directory, 7)
    threads = [
        threading.Thread(target=write_own, args=(directory, 7, rank, pieces)) for rank, pieces in enumerate(of_ranks)
    ]
    for thread in reversed(threads):
        thread.start()
    return commit_sharded(directory, COMMITTED, len(of_ranks), 20).path


def test_what_ranks_saved_is_the_state(tmp_path: Path) -> None:
    path = saved(tmp_path, [step(), rows_of(0, 1)], [rows_of(1, 4)])
    assert sorted(each.name for each in path.iterdir()) == [COMMIT, name_of(0), name_of(1)]
    state = read_saved(path)
    assert (state.step, state.params["w"].tolist()) == (7, WHOLE.tolist())


def test_a_rank_that_cannot_save_fails_the_checkpoint(tmp_path: Path) -> None:
    open_directory(tmp_path)
    part = begin_checkpoint(tmp_path, 7)
    (part / name_of(1)).write_text("mine")
    write_own(tmp_path, 7, 0, [step()])
    write_own(tmp_path, 7, 1, [])
    with pytest.raises(OSError, match=r"rank 1: .*state-rank-1.npz is not a plain file that samestep wrote"):
        commit_sharded(tmp_path, COMMITTED, 2, 20)
    assert [*find_checkpoints(tmp_path)] == [] and [each.name for each in part.iterdir()] == [name_of(1)]


def test_a_rank_that_says_nothing_is_not_waited_for_without_end(tmp_path: Path) -> None:
    open_directory(tmp_path)
    begin_checkpoint(tmp_path, 7)
    write_own(tmp_path, 7, 0, [step()])
    with pytest.raises(OSError, match="rank 1 has not written its part"):
        commit_sharded(tmp_path, COMMITTED, 2, 0.05)
    assert [*(tmp_path / FOLDER).iterdir()] == []


def forge(path: Path, change: Callable[[dict], None]) -> None:
    """Changes what a commit says."""
    said = json.loads((path / COMMIT).read_text())
    change(said)
    (path / COMMIT).write_text(json.dumps(said))


def digested(path: Path) -> tuple[int, str]:
    return path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()


def replaced(path: Path, pieces: Pieces) -> None:
    """Puts another file in the place of rank 1's, with its digest in the commit: only the pieces can tell."""
    with (path / name_of(1)).open("wb") as file:
        dump_pieces(file, pieces)
    forge(path, lambda said: said["files"].update({name_of(1): digested(path / name_of(1))}))


DAMAGE = {
    "a missing rank": (lambda path: (path / name_of(1)).unlink(), r"state-rank-1\.npz: No such file or directory"),
    "a rank that the commit leaves out": (
        lambda path: forge(path, lambda said: said["files"].pop(name_of(1))),
        r"it has 6 of the 12 numbers of params/w: a rank's file is missing",
    ),
    "a torn file": (
        lambda path: (path / name_of(1)).write_bytes((path / name_of(1)).read_bytes()[:100]),
        r"state-rank-1\.npz does not have the digest that commit\.json says",
    ),
    "a changed byte": (
        lambda path: (path / name_of(1)).write_bytes((path / name_of(1)).read_bytes()[:-1] + b"x"),
        r"state-rank-1\.npz does not have the digest that commit\.json says",
    ),
    "a torn commit": (
        lambda path: (path / COMMIT).write_text((path / COMMIT).read_text()[:-9]),
        r"commit\.json: it is not JSON",
    ),
    "another version": (
        lambda path: forge(path, lambda said: said.update(schema=2)),
        r"commit\.json: its schema is 2, and 1 can be read",
    ),
    "another step": (
        lambda path: forge(path, lambda said: said.update(step=8)),
        r"commit\.json is of step 8",
    ),
    "an overlap": (lambda path: replaced(path, [rows_of(1, 4)]), "its pieces of params/w overlap"),
    "an overlap that leaves a hole": (lambda path: replaced(path, [rows_of(1, 3)]), "its pieces of params/w overlap"),
    "another shape": (
        lambda path: replaced(path, [dataclasses.replace(rows_of(2, 4), shape=(5, 3))]),
        "its pieces of params/w are of arrays with different shapes or dtypes",
    ),
    "another dtype": (
        lambda path: replaced(path, [dataclasses.replace(rows_of(2, 4), array=np.ones((2, 3), np.float32))]),
        "its pieces of params/w are of arrays with different shapes or dtypes",
    ),
    "a piece outside": (
        lambda path: replaced(path, [dataclasses.replace(rows_of(2, 4), offset=(3, 0))]),
        r"state-rank-1\.npz: params/w@3,0:4,3 does not lie within its array",
    ),
    "no piece": (
        lambda path: (
            np.savez(path / name_of(1), w=np.ones(2))
            or forge(path, lambda said: said["files"].update({name_of(1): digested(path / name_of(1))}))
        ),
        r"state-rank-1\.npz: w is not a piece of an array",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_no_whole_state_is_refused_in_one_line(tmp_path: Path, what: str) -> None:
    damage, why = DAMAGE[what]
    path = saved(tmp_path, [step(), rows_of(0, 2)], [rows_of(2, 4)])
    damage(path)
    with pytest.raises(ConfigError, match=rf"--start-from .* is a damaged checkpoint: {why}.*; give another\.") as said:
        read_saved(path)
    assert "\n" not in str(said.value)


def trained(launcher: Launcher, cell: str, out: Path, **fields: object) -> RunResult:
    defaults = {"workload": SIZED["mlp"], "batch_size": 48, "steps": 8, "devices": 4, "optimizer": "adamw"}
    more = {"dtype": "float64", "parity": False, "keep_state": True, "out": str(out)}
    config = Cell.parse(cell).apply_to(RunConfig(**{**defaults, **more, **fields}))
    run, launch = parse(config), launch_of(config)
    return launcher.run(run, launch, resume=out if out.exists() else None)


def furthest(one: TrainState, other: TrainState) -> float:
    """The largest difference between any two numbers of two states."""
    pairs = [(one.params, other.params), *((arrays, other.slots[slot]) for slot, arrays in one.slots.items())]
    assert all(left.keys() == right.keys() for left, right in pairs) and one.step == other.step
    return max(float(abs(left[name] - right[name]).max()) for left, right in pairs for name in left)


SHARDED = ["fsdp", "zero1", "zero2", "tp", "pp", "hybrid"]


@pytest.mark.torch
@pytest.mark.parametrize(
    "cell",
    ["torch:fsdp", *(pytest.param(f"torch:{each}", marks=pytest.mark.slow) for each in SHARDED[1:])],
)
def test_a_sharded_checkpoint_is_gone_on_from_in_the_same_bits_and_by_others(
    launcher: Launcher, tmp_path: Path, cell: str
) -> None:
    out = tmp_path / "run"
    whole = trained(launcher, cell, out, save_every="4")
    (found,) = find_checkpoints(out)
    assert sorted(found.commit.files) == [name_of(rank) for rank in range(4)]
    (out / "result.json").unlink()
    again = trained(launcher, cell, out, save_every="4")
    assert (again.resumed_at, again.losses, again.state_sha256) == (4, whole.losses, whole.state_sha256)
    other = trained(launcher, "torch:ddp", tmp_path / "other", devices=2, start_from=str(found.path), parity=True)
    assert other.parity.passed, other.parity.reason
    assert other.losses == pytest.approx(whole.losses[4:], rel=1e-10)
    assert furthest(read_state(tmp_path / "other"), read_state(out)) < 1e-10


@pytest.mark.torch
@pytest.mark.parametrize(
    ("cell", "mesh"),
    [
        ("torch:ep", "data=2,expert=2"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("torch:ep", "expert=4"),
                ("torch:fsdp", "shard=2,expert=2"),
                ("torch:hybrid", "pipe=2,expert=2"),
                ("torch:hybrid", "expert=2,tensor=2"),
            )
        ),
    ],
)
def test_so_is_one_of_experts(launcher: Launcher, tmp_path: Path, cell: str, mesh: str) -> None:
    """On fewer devices than it was saved by, which have other experts."""
    fields, out = {"workload": f"{SIZED['transformer']}+experts=4+balance=0", "save_every": "4"}, tmp_path / "run"
    whole = trained(launcher, cell, out, mesh=mesh, devices=None, **fields)
    (found,) = find_checkpoints(out)
    assert sorted(found.commit.files) == [name_of(rank) for rank in range(4)]
    (out / "result.json").unlink()
    again = trained(launcher, cell, out, mesh=mesh, devices=None, **fields)
    assert (again.resumed_at, again.losses, again.state_sha256) == (4, whole.losses, whole.state_sha256)
    fewer = fields | {"devices": 2, "start_from": str(found.path), "parity": True, "save_every": None}
    other = trained(launcher, "torch:ep", tmp_path / "other", **fewer)
    assert other.parity.passed, other.parity.reason
    assert furthest(read_state(tmp_path / "other"), read_state(out)) < 1e-10


IN_THEIR_OWN_WAY = [
    pytest.param("torch:deepspeed+zero_stage=3", 2, marks=pytest.mark.torch),
    *(pytest.param(f"torch:deepspeed+zero_stage={n}", 4, marks=[pytest.mark.torch, pytest.mark.slow]) for n in (1, 2)),
    pytest.param("tf:dtensor+clients=2+mesh=tensor=4", 2, marks=[pytest.mark.tf, pytest.mark.slow]),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("cell", "num_files"), IN_THEIR_OWN_WAY)
@pytest.mark.parametrize("model", ["mlp", *slow("cnn", "transformer")])
def test_what_processes_save_of_it_is_the_state(
    launcher: Launcher, tmp_path: Path, cell: str, num_files: int, model: str
) -> None:
    """DeepSpeed's stretches of flattened parameters, which end within a row; and shards of two clients' devices."""
    workload = (
        "digits-mlp+width=33" if model == "mlp" and "deepspeed" in cell else SIZED[model]
    )  # which nothing divides
    fields = {"dtype": "float32", "workload": workload, "devices": None if "mesh=" in cell else num_files}
    whole = trained(launcher, cell, tmp_path / "run", save_every="4", **fields)
    (found,) = find_checkpoints(tmp_path / "run")
    assert sorted(found.commit.files) == [name_of(rank) for rank in range(num_files)]
    trained(launcher, cell, tmp_path / "early", steps=4, **fields)
    state, early = found.state(), read_state(tmp_path / "early")
    assert state.buffers.keys() == early.buffers.keys() and furthest(state, early) == 0
    (tmp_path / "run/result.json").unlink()
    again = trained(launcher, cell, tmp_path / "run", save_every="4", **fields)
    assert (again.resumed_at, again.losses, again.state_sha256) == (4, whole.losses, whole.state_sha256)


@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("source", [*(f"torch:{each}" for each in SHARDED), "tf:dtensor+clients=2+mesh=tensor=4"])
def test_any_strategy_goes_on_from_a_sharded_checkpoint(launcher: Launcher, tmp_path: Path, source: str) -> None:
    trained(launcher, source, tmp_path / "run", save_every="4", devices=None if "mesh=" in source else 4)
    (found,) = find_checkpoints(tmp_path / "run")
    for framework, row in every_row():
        if not (row.synchronous(row.options()) and "float64" in row.dtypes and takes(row, "mlp")):
            continue
        out = tmp_path / f"{framework}-{row.name}"
        devices = 2 if row.axes else 1
        other = trained(launcher, f"{framework}:{row.name}", out, devices=devices, start_from=str(found.path))
        assert other.first_step == 4, row.name
        assert furthest(read_state(out), read_state(tmp_path / "run")) < 1e-10, row.name
        (out / STATE).unlink()
