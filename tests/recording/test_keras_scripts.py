"""Whole scripts of Keras: one model in two frameworks, what the options do, and mistakes that Keras once made."""

import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.joining import read_run
from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import RecordedStep, RecordHeader, rank_file
from tests.cells import slow, takes_slow_tests
from tests.recording.records import run_forked
from tests.sharing import made_once

pytestmark = [pytest.mark.tf, pytest.mark.torch, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
CASES: Mapping[str, tuple[str, list[str], dict[str, object]]] = {
    "plain": ("keras_mlp.py", [], {}),
    "perturbed": ("keras_mlp.py", [], {"perturb": 1, "stop_after": 2}),
    "other": ("keras_mlp.py", [], {"perturb": 2, "stop_after": 2}),
    "wide": ("keras_mlp.py", [], {"float64": True}),
    "saved": ("keras_mlp.py", [], {"perturb": 1, "weights_to": "weights.npz", "stop_after": 0}),
    "loaded": ("keras_mlp.py", [], {"weights_from": "weights.npz", "stop_after": 2}),
    "variables": ("tf_variables.py", [], {}),
    "variables in a graph": ("tf_variables.py", ["graph"], {}),
    "variables perturbed": ("tf_variables.py", [], {"perturb": 1, "stop_after": 1}),
}
MORE: Mapping[str, tuple[str, list[str], dict[str, object]]] = {
    "decay": ("keras_decay.py", [], {}),
    "wrong decay": ("keras_decay.py", ["wrong"], {}),
    "optimizer": ("keras_manual.py", ["optimizer"], {}),
    "eager": ("keras_manual.py", ["eager"], {}),
    "graph": ("keras_manual.py", ["graph"], {}),
    "halves": ("keras_manual.py", ["halves"], {}),
    "one": ("keras_replicas.py", ["one"], {}),
    "unreduced": ("keras_replicas.py", ["unreduced"], {}),
    "summed": ("keras_replicas.py", ["summed"], {}),
}
ELSEWHERE = {
    "torch": (["torch_mlp.py"], {}),
}
MORE_ELSEWHERE = {
    "keras on torch": (["keras_mlp.py"], {"KERAS_BACKEND": "torch"}),
    "keras on torch, accumulated": (["keras_mlp.py", "2"], {"KERAS_BACKEND": "torch"}),
}


def make(out: Path, more: bool) -> None:
    """Records the scripts, all but a few in one process."""
    out.mkdir()
    cases = []
    for name, (script, arguments, options) in (CASES | (MORE if more else {})).items():
        (out / name).mkdir()
        paths = {key: str(out / str(options[key])) for key in ("weights_to", "weights_from") if key in options}
        cases.append((str(HERE / "scripts" / script), arguments, {"out": str(out / name)} | options | paths, 1))
    run_forked("keras", cases)
    for name, ((script, *arguments), environment) in (ELSEWHERE | (MORE_ELSEWHERE if more else {})).items():
        command = [sys.executable, str(HERE / "scripts" / script), *arguments]
        recorder = [sys.executable, "-m", "samestep", "record", "--out", str(out / name), "--", *command]
        done = subprocess.run(recorder, env=os.environ | environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = takes_slow_tests(request)
    return made_once(tmp_path_factory, "records-of-keras-scripts", functools.partial(make, more=more))


def read(directory: Path, rank: int = 0) -> tuple[RecordHeader, list[RecordedStep]]:
    with (directory / rank_file(rank)).open("rb") as file:
        header, steps = read_rank(file, "a record")
        return header, list(steps)


def stats(step: RecordedStep, phase: str) -> np.ndarray:
    assert step.stats is not None
    return step.stats[phase]  # pyrefly: ignore


@pytest.mark.parametrize("name", ["eager", "graph"])
@pytest.mark.slow
def test_a_loop_without_an_optimizer_takes_the_same_steps(out: Path, name: str) -> None:
    (header, steps), (own_header, own) = read(out / name), read(out / "optimizer")
    assert header.tensors == own_header.tensors
    assert [each.number for each in steps] == [each.number for each in own] == [-1, 0, 1, 2, 3]
    for one, other in zip(steps, own, strict=True):
        assert sum(one.losses) == pytest.approx(sum(other.losses), rel=1e-5) and one.rows == other.rows
        for phase in other.stats or {}:
            found, expected = stats(one, phase)["projections"], stats(other, phase)["projections"]
            assert np.allclose(found, expected, atol=1e-5, equal_nan=True), phase
    assert "lr" not in steps[1].scalars


@pytest.mark.parametrize("name", ["variables", "variables in a graph"])
def test_a_script_without_layers_is_recorded(out: Path, name: str) -> None:
    header, steps = read(out / name)
    assert [each.name for each in header.tensors] == ["w", "b"]
    assert [each.number for each in steps] == [-1, 0, 1, 2, 3] and all(len(each.losses) == 1 for each in steps[1:])
    for before, step in itertools.pairwise(steps):
        moved = stats(before, "weight")["projections"] - stats(step, "weight")["projections"]
        assert np.allclose(moved, 0.1 * stats(step, "gradient")["projections"], atol=1e-5)


def test_a_script_without_layers_is_perturbed_before_its_first_pass(out: Path) -> None:
    (_, plain), (_, moved) = read(out / "variables"), read(out / "variables perturbed")
    for phase, number in (("weight", 0), ("gradient", 1)):
        one, other = (stats(each[number], phase)[0] for each in (plain, moved))  # of w; 0.5 rounds to itself
        assert one["bits"] != other["bits"] and np.allclose(one["projections"], other["projections"], rtol=1e-4)


@pytest.mark.slow
def test_the_passes_of_a_step_without_an_optimizer_add_up(out: Path) -> None:
    header, steps = read(out / "halves")
    assert [each.number for each in steps] == [-1, 0, 1, 2, 3]
    trained = [each.is_trained for each in header.tensors]
    for before, step in itertools.pairwise(steps):
        assert len(step.rows or ()) == 16 and not step.is_skipped
        moved = (stats(before, "weight")["projections"] - stats(step, "weight")["projections"])[trained]
        assert np.allclose(moved, 0.1 * stats(step, "gradient")["projections"][trained], atol=1e-5)
        assert np.abs(moved).max() > 0.01


@pytest.mark.parametrize("name", [*ELSEWHERE, *slow(*MORE_ELSEWHERE)])
def test_a_model_is_the_same_in_both_frameworks(out: Path, name: str) -> None:
    (header, steps), (own_header, own) = read(out / name), read(out / "plain")
    assert header.framework == name.partition(",")[0]
    assert [each.piece for each in header.tensors] == [each.piece for each in own_header.tensors]
    assert [each.number for each in steps] == [each.number for each in own] == [-1, 0, 1, 2, 3]
    for one, other in zip(steps, own, strict=True):
        assert sum(one.losses) == pytest.approx(sum(other.losses), rel=1e-5)
        assert sorted(one.rows or ()) == sorted(other.rows or ())
        common = {"lr", "momentum", "weight_decay", "nesterov"} & set(one.scalars) if other.scalars else set()
        assert not other.scalars or {"lr", "momentum"} <= common
        assert {key: one.scalars[key] for key in common} == {key: other.scalars[key] for key in common}
        if other.scalars:
            assert one.scalars["clip_max_norm"] == other.scalars["clip_max_norm"] == 1.5
            assert one.scalars["clip_norm"] == pytest.approx(other.scalars["clip_norm"], rel=1e-5)
        for phase in other.stats or {}:
            found, expected = stats(one, phase), stats(other, phase)
            apart = np.abs(found["projections"] - expected["projections"]).max(axis=1)
            assert (apart <= 1e-5 * np.sqrt(expected["square"])).all(), (one.number, phase)


def test_weights_are_perturbed_in_their_last_bit(out: Path) -> None:
    (header, (start, first, *_)), (_, plain), (_, other) = (
        read(out / "perturbed"),
        read(out / "plain"),
        read(out / "other"),
    )
    assert header.perturbed == 1
    bits = [each[0] for each in (plain, [start], other)]
    sums = {tuple(stats(each, "weight")["bits"].tolist()) for each in bits}
    assert len(sums) == 3
    apart = np.abs(stats(start, "weight")["projections"] - stats(plain[0], "weight")["projections"]).max(axis=1)
    assert (apart <= 1e-6 * np.sqrt(stats(start, "weight")["square"])).all()
    assert first.losses != plain[1].losses and first.losses[0] == pytest.approx(plain[1].losses[0], rel=1e-5)
    assert len(read(out / "perturbed")[1]) == 3  # the initial weights and two steps


def test_weights_are_saved_and_loaded(out: Path) -> None:
    assert not (out / "saved" / rank_file(0)).exists()
    with np.load(out / "weights.npz") as arrays:
        assert {name: array.shape for name, array in arrays.items()} == {
            **{"sequential/first/kernel": (5, 6), "sequential/first/bias": (5,)},
            **{"sequential/last/kernel": (1, 5), "sequential/last/bias": (1,)},
        }
    (_, (loaded, *_)), (_, (perturbed, *_)) = read(out / "loaded"), read(out / "perturbed")
    assert stats(loaded, "weight")["bits"].tolist() == stats(perturbed, "weight")["bits"].tolist()


def test_float64(out: Path) -> None:
    (header, steps), (_, plain) = read(out / "wide"), read(out / "plain")
    assert header.is_float64 and {each.dtype for each in header.tensors} == {"float64"}
    assert [each.rows for each in steps] == [each.rows for each in plain]
    assert steps[-1].losses[0] == pytest.approx(plain[-1].losses[0], rel=1e-5)
    assert steps[-1].losses[0] != plain[-1].losses[0]


@pytest.mark.slow
def test_a_decay_at_every_batch_is_seen_in_the_weights(out: Path) -> None:
    (_, (_, right, *_)), (_, (_, wrong, *_)) = read(out / "decay"), read(out / "wrong decay")
    ratio = np.sqrt(stats(wrong, "weight")["square"] / stats(right, "weight")["square"])
    assert ratio[0] == pytest.approx(0.99, abs=1e-3)  # 1 - rate * decay, once more


@pytest.mark.slow
def test_replicas_that_exchange_nothing_drift_apart(out: Path) -> None:
    (_, first), (_, second) = read(out / "unreduced", 0), read(out / "unreduced", 1)
    assert stats(first[0], "weight")["bits"].tolist() == stats(second[0], "weight")["bits"].tolist()
    assert (stats(first[1], "weight")["bits"] != stats(second[1], "weight")["bits"]).all()


@pytest.mark.slow
def test_losses_that_are_summed_double_every_gradient(out: Path) -> None:
    (header, (_, one, *_)), (_, (_, summed, *_)) = read(out / "one"), read(out / "summed")
    assert header.world == 1
    ratios = stats(summed, "gradient")["projections"] / stats(one, "gradient")["projections"]
    assert np.median(ratios) == pytest.approx(2, rel=1e-4)


@pytest.mark.slow
def test_an_optimizer_of_torch_trains_a_model_of_keras(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "samestep", "record", "--out", str(tmp_path / "by-hand"), "--"]
    line += [sys.executable, str(HERE / "scripts" / "keras_by_hand.py")]
    environment = os.environ | {"KERAS_BACKEND": "torch"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    _, steps = read(tmp_path / "by-hand")
    assert [each.number for each in steps] == [-1, 0, 1]
    assert np.isfinite(stats(steps[1], "gradient")["square"]).all()


@pytest.mark.slow
def test_optimizers_of_keras_on_torch_take_one_step_together_if_they_update_other_variables(tmp_path: Path) -> None:
    """`compile` has an optimizer know the variables of the whole model, of which a script may give it some."""
    line = [sys.executable, "-m", "samestep", "record", "--out", str(tmp_path / "halves"), "--"]
    line += [sys.executable, str(HERE / "scripts" / "keras_halves.py")]
    environment = os.environ | {"KERAS_BACKEND": "torch"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    _, steps = read(tmp_path / "halves")
    assert [each.number for each in steps] == [-1, 0, 1, 2]
    assert [(each.scalars["lr"], each.scalars["lr/1"]) for each in steps[1:]] == [(0.01, 0.1)] * 3


@pytest.mark.slow
def test_targets_of_keras_on_torch_are_hashed(out: Path, tmp_path: Path) -> None:
    script = (HERE / "scripts" / "keras_mlp.py").read_text()
    (tmp_path / "shifted.py").write_text(script.replace("first, last = ", "y[0] += 1\nfirst, last = "))
    command = [sys.executable, str(tmp_path / "shifted.py")]
    recorder = [sys.executable, "-m", "samestep", "record", "--out", str(tmp_path / "shifted"), "--", *command]
    subprocess.run(recorder, env=os.environ | {"KERAS_BACKEND": "torch"}, check=True, capture_output=True, timeout=200)
    line = [sys.executable, "-m", "samestep", "diff", str(out / "keras on torch"), str(tmp_path / "shifted")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200)
    assert done.returncode == 4
    assert done.stdout.startswith("not the same: step 0, data: the targets of 1 of 8 examples are different in B")


@pytest.mark.slow
def test_workers_of_a_strategy_are_ranks(tmp_path: Path) -> None:
    runs = {}
    for word in ("alone", "together", "local"):
        line = [sys.executable, "-m", "samestep", "record", "--out", str(tmp_path / word), "--"]
        line += [sys.executable, str(HERE / "scripts" / "keras_workers.py"), word]
        done = subprocess.run(line, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        runs[word] = read_run(tmp_path / word)
    assert [run.header.world for run in runs.values()] == [1, 2, 2]
    assert judge(runs["alone"], runs["together"]).kind == "same"
    (cause,) = judge(runs["together"], runs["local"]).causes
    assert cause.name == "loss_divided_by_processes"
