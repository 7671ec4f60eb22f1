"""Records of one small model, trained in every way that Keras knows: they are those of one plain `fit`."""

import math
from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.projections import sum_of_bits
from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import RecordedStep, RecordHeader, rank_file, rank_files
from samestep.common.steps.rows import hash_rows
from samestep.experiments.recording.facts import facts_of
from tests.cells import slow, takes_slow_tests
from tests.recording.projecting import project
from tests.recording.records import ROOT, run_forked
from tests.sharing import made_once

pytestmark = [pytest.mark.tf, pytest.mark.timeout(600)]
TWINS = ("jit", "custom", "accumulated")
MORE_TWINS = ("compiled_tape", "eagerly", "on_batch", "many_a_call", "tape", "loop_in_graph", "scaled")
MIRRORED = ("mirrored",)
MORE_MIRRORED = ("mirrored_tape", "scaled_mirrored")
ALONE = (
    "fit",
    "longer@3",
    "overflowing",
    "accumulated_eagerly",
    "kinds",
    "two_optimizers",
    "other_model@3",
    "joined_at_times@4",
    "eager_epochs",
    "calls_of_both_kinds",
    "asynchronous",
    "exported",
    "counted_elsewhere",
    "loop_after_fit",
    "noisy",
    "twice",
    "untrained",
)
NOTED = ("longer_calls.notes", "counted_elsewhere.notes")
MORE = (*MORE_TWINS, *MORE_MIRRORED, "long_calls", "longer_calls")
CLOSE = 1e-5
"""Of the norm, in float32."""


@pytest.fixture(scope="module")
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        folder.mkdir()
        cases = [*ALONE, *TWINS, *MIRRORED, *(MORE if takes_slow_tests(request) else ())]
        run_forked("keras", [(str(ROOT / "tests" / "recording" / "keras_cases.py"), [str(folder), *cases], None, 1)])
        assert all(not each.read_text() for each in folder.glob("*.notes") if each.name not in NOTED)

    return made_once(tmp_path_factory, "records-of-keras", make)


def read(directory: Path, rank: int = 0) -> tuple[RecordHeader, list[RecordedStep]]:
    with (directory / rank_file(rank)).open("rb") as file:
        header, steps = read_rank(file, "a record")
        return header, list(steps)


def is_close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two rows of statistics are those of one tensor but for rounding."""
    apart = np.sqrt(np.mean((one["projections"] - other["projections"]) ** 2, axis=-1))
    return bool(np.all(apart <= CLOSE * np.maximum(np.sqrt(other["square"]), 1e-2)))


def check_stats(one: RecordedStep, other: RecordedStep) -> None:
    assert one.stats is not None and other.stats is not None
    for phase in other.stats:
        assert is_close(one.stats[phase], other.stats[phase]), (one.number, phase)


def test_the_script_does_what_it_does_unrecorded(out: Path) -> None:
    header, steps = read(out / "fit")
    bare = np.split(np.load(out / "bare.npy"), np.cumsum([math.prod(each.piece.shape) for each in header.tensors])[:-1])
    assert [sum_of_bits(each) for each in bare] == steps[-1].stats["weight"]["bits"].tolist()


@pytest.mark.parametrize("case", [*TWINS, *slow(*MORE_TWINS)])
def test_a_way_to_train_is_recorded_as_fit_is(out: Path, case: str) -> None:
    (header, steps), (plain_header, plain) = read(out / case), read(out / "fit")
    assert header.tensors == plain_header.tensors
    assert [each.number for each in steps] == [-1, 0, 1, 2, 3]
    for one, other in zip(steps, plain, strict=True):
        check_stats(one, other)
        assert sum(one.losses) == pytest.approx(sum(other.losses), rel=1e-6)
        assert sorted(one.rows or ()) == sorted(other.rows or ())
        assert {name: one.scalars.get(name) for name in other.scalars} == other.scalars
    assert steps[0].stats["weight"]["bits"].tolist() == plain[0].stats["weight"]["bits"].tolist()


@pytest.mark.parametrize("case", [*MIRRORED, *slow(*MORE_MIRRORED)])
def test_replicas_are_ranks(out: Path, case: str) -> None:
    _, plain = read(out / "fit")
    assert len(rank_files(out / case)) == 2
    (header, first), (other_header, second) = read(out / case, 0), read(out / case, 1)
    assert (header.rank, header.world, other_header.rank, other_header.world) == (0, 2, 1, 2)
    for one, two, whole in zip(first, second, plain, strict=True):
        check_stats(one, whole)
        assert one.stats["weight"]["bits"].tolist() == two.stats["weight"]["bits"].tolist()
        assert sorted((one.rows or ()) + (two.rows or ())) == sorted(whole.rows or ())
        assert (sum(one.losses) + sum(two.losses)) / 2 == pytest.approx(sum(whole.losses), rel=1e-6)
        if "local" in one.stats:
            added = one.stats["local"]["projections"] + two.stats["local"]["projections"]
            assert np.allclose(added, one.stats["gradient"]["projections"], atol=1e-5)


def test_rows_and_scalars(out: Path) -> None:
    _, steps = read(out / "fit")
    inputs = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32)
    assert [each.rows for each in steps[1:]] == [
        tuple(hash_rows([inputs[k : k + 8]]).tolist()) for k in range(0, 32, 8)
    ]
    assert {name: steps[1].scalars[name] for name in ("lr", "betas.0", "betas.1", "eps", "weight_decay")} == {
        "lr": 0.01,
        "betas.0": 0.9,
        "betas.1": 0.999,
        "eps": 1e-7,
        "weight_decay": 0.1,
    }


def test_passes_through_the_data(out: Path) -> None:
    assert [each.counts for each in read(out / "fit")[1][1:]] == [{"data_passes": 1}, {}, {}, {}]
    first, *others = read(out / "mirrored", 1)[1][1:]
    assert first.counts["data_passes"] in (1, 2)  # Keras may look at a batch to build the model
    assert not any(each.counts for each in others)


def test_a_pass_begins_with_its_first_step_where_steps_are_taken_eagerly(out: Path) -> None:
    steps = read(out / "eager_epochs")[1][1:]
    assert [each.number for each in steps if each.counts.get("data_passes")] == [0, 4]


def test_no_example_of_a_loop_belongs_to_the_pass_before_it(out: Path) -> None:
    assert [each.counts for each in read(out / "loop_after_fit")[1][5:]] == [{"passes_over": 1}, {}]
    assert not [line for line in facts_of(out / "loop_after_fit") if line.startswith("within one")]


@pytest.mark.parametrize(
    ("case", "said"), [("noisy", ""), ("twice", "1 of 31 examples was used 2 times, and others 1 time")]
)
def test_what_is_no_example_of_an_epoch_does_not_count_as_one(out: Path, case: str, said: str) -> None:
    found = [line for line in facts_of(out / case) if line.startswith("within one epoch of Keras")]
    assert len(found) == bool(said) and all(said in line for line in found)


def test_a_variable_that_keras_does_not_train_is_named(out: Path) -> None:
    assert facts_of(out / "untrained")[1:] == ["had no gradient at any update: factor."]
    assert all(len(facts_of(out / case)) == 1 for case in ("fit", "jit", "custom"))


def test_a_step_that_another_optimizer_joins_is_not_like_the_one_before_it(out: Path) -> None:
    steps = read(out / "joined_at_times@4")[1][1:]
    assert [each.number for each in steps if each.stats] == [*range(10), 12]
    assert [each.number for each in steps if each.scalars.get("lr/1") == 0.01] == [2, 5, 8, 11, 14]


def test_no_step_is_lost_where_one_call_takes_compiled_steps_and_others(out: Path) -> None:
    (_, plain), (_, steps) = read(out / "fit"), read(out / "calls_of_both_kinds")
    assert [each.number for each in steps] == [*range(-1, 16)]
    assert [sorted(each.rows) for each in steps[1:]] == [sorted(plain[1 + k // 4].rows) for k in range(16)]


def test_steps_are_waited_for_where_calls_return_before_them(out: Path) -> None:
    plain, steps = read(out / "fit")[1], read(out / "asynchronous" / "so far")[1]
    assert [(each.number, each.rows) for each in steps] == [(each.number, each.rows) for each in plain]


def test_a_function_that_trains_is_saved_as_it_is_unrecorded_and_recorded_on(out: Path) -> None:
    (_, plain), (_, steps) = read(out / "fit"), read(out / "exported")
    assert [(each.number, each.losses) for each in steps] == [(each.number, each.losses) for each in plain]
    assert b"InplaceUpdate" not in (out / "exported" / "module" / "saved_model.pb").read_bytes()


def test_steps_that_are_counted_and_cannot_be_read_are_told(out: Path) -> None:
    assert len(read(out / "counted_elsewhere")[1]) == 5
    assert (
        "6 steps were taken, and of the last 2 nothing could be read" in (out / "counted_elsewhere.notes").read_text()
    )


def test_clipping_is_seen_that_begins_after_the_first_pass(out: Path) -> None:
    _, steps = read(out / "accumulated_eagerly")
    assert [each.scalars["clip_norm"] > each.scalars["clip_max_norm"] for each in steps[1:]] == [True, True]


def test_every(out: Path) -> None:
    _, steps = read(out / "longer@3")
    assert [each.number for each in steps[1:] if each.stats] == [*range(10), 12, 15]
    assert all(each.losses and each.rows for each in steps[1:])
    assert [each.rows for each in steps[1:13]] == [each.rows for each in steps[5:]]  # an epoch has four batches
    assert len({each.losses for each in steps[1:]}) == len({each.rows for each in steps[1:5]}) * 4 == 16
    assert all(each.scalars == steps[1].scalars and not each.counts for each in steps[2:])


def test_a_model_that_is_made_later_is_added(out: Path) -> None:
    (header, steps), (_, plain) = read(out / "other_model@3"), read(out / "fit")
    assert [each.name.rpartition("/")[0].rpartition("/")[2] for each in header.tensors[4:]] == ["other"] * 2
    assert [each.number for each in steps] == [*range(-1, 8)]
    kernel = [step.stats["weight"][4] for step in steps]
    assert kernel[0] == kernel[4] != kernel[5] and len({each["bits"] for each in kernel[4:]}) == 5
    has = [np.isfinite(step.stats["gradient"]["square"]).tolist() for step in steps[1:]]
    assert has == [[True] * 4 + [False] * 2] * 4 + [[False] * 4 + [True] * 2] * 4
    assert steps[8].stats["weight"]["bits"][:4].tolist() == plain[4].stats["weight"]["bits"].tolist()


def test_a_model_that_is_deleted_is_not_kept(out: Path) -> None:
    assert not np.load(out / "other_model@3" / "kept.npy").any()  # the model, its optimizer, a kernel


def test_skipped_steps(out: Path) -> None:
    _, (start, *steps) = read(out / "overflowing")
    skipped = [each.is_skipped for each in steps]
    assert skipped[0] and not skipped[-1]
    assert steps[0].stats["weight"]["bits"].tolist() == start.stats["weight"]["bits"].tolist()
    assert steps[1].scalars["loss_scale"] == steps[0].scalars["loss_scale"] / 2
    is_infinite = [~np.isfinite(each.stats["gradient"]["square"]) for each in steps]
    assert [bool(each.any()) for each in is_infinite] == skipped
    assert all(each.stats["gradient"]["bits"].any() for each in steps)


def test_projections_are_those_of_torchs_layout(out: Path) -> None:
    header, steps = read(out / "kinds")
    arrays = {name: array for name, array in np.load(out / "kinds" / "weights.npz").items() if "norm/" not in name}
    turned = {
        "conv/kernel": (3, 2, 0, 1),
        "depthwise/kernel": (2, 3, 0, 1),
        "lstm/lstm_cell/kernel": (1, 0),
        "lstm/lstm_cell/recurrent_kernel": (1, 0),
        "last/kernel": (1, 0),
        "frozen/kernel": (1, 0),
    }
    shapes = {"depthwise/kernel": (8, 1, 2, 2)}
    for name in ("query", "key", "value"):
        turned[f"mha/{name}/kernel"], shapes[f"mha/{name}/kernel"] = (1, 2, 0), (8, 6)
        shapes[f"mha/{name}/bias"] = (8,)
    turned["mha/attention_output/kernel"], shapes["mha/attention_output/kernel"] = (2, 0, 1), (6, 8)
    place = {each.name: k for k, each in enumerate(header.tensors)}
    assert set(arrays) <= set(place)
    assert header.tensors[place["norm/moving_mean"]].role == "buffer"
    assert not header.tensors[place["frozen/kernel"]].is_trained
    for name, array in arrays.items():
        expected = array.transpose(turned[name]) if name in turned else array
        expected = expected.reshape(shapes.get(name, expected.shape))
        assert header.tensors[place[name]].piece.shape == expected.shape, name
        row = steps[-1].stats["weight"][place[name]]
        assert np.allclose(row["projections"], project(expected), atol=1e-5 * np.linalg.norm(array) + 1e-7), name
        assert row["square"] == pytest.approx(np.sum(array.astype(float) ** 2), rel=1e-5)
        assert row["bits"] == sum_of_bits(array)
    assert np.isnan(steps[1].stats["gradient"]["square"][place["frozen/kernel"]])
    assert steps[1].scalars["clip_max_norm"] == 1.0
    trained = [k for k, each in enumerate(header.tensors) if each.is_trained]
    assert steps[1].stats["gradient"]["square"][trained].sum() == pytest.approx(1.0, rel=1e-5)
    with np.load(out / "kinds" / "inputs.npz") as inputs:
        assert steps[1].rows == tuple(hash_rows([*inputs.values()]).tolist())


@pytest.mark.slow
def test_calls_of_many_steps(out: Path) -> None:
    _, steps = read(out / "long_calls")
    assert [each.number for each in steps] == [*range(-1, 70)]
    _, steps = read(out / "longer_calls")
    assert [each.number for each in steps] == [-1, *range(72 - 64, 72)]
    assert all(len(each.rows) == 8 for each in steps[1:])
    assert "took 8 steps more than the 64 that are kept" in (out / "longer_calls.notes").read_text()


def test_two_optimizers_take_steps_in_turn(out: Path) -> None:
    header, steps = read(out / "two_optimizers")
    assert [each.name.rpartition("/")[0][-2:] for each in header.tensors] == ["d6", "d6", "d1", "d1"]
    for each in steps[1:]:
        has_gradient = ~np.isnan(each.stats["gradient"]["square"])
        assert has_gradient.tolist() == ([False, False, True, True] if each.number % 2 else [True, True, False, False])
        assert not np.isnan(each.stats["weight"]["square"]).any()
        assert len(each.rows) == 8
