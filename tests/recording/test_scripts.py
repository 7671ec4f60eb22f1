"""Scripts of every kind are recorded without a changed line; those that take the same steps have the same records."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.environment import DECIDING
from samestep.common.steps.joining import read_run
from tests.recording.records import Rank, distance, examples, joined, loss, read_many, recorded_once, run_many

pytestmark = pytest.mark.torch
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "plain": ("plain.py", {}),
    "seldom": ("plain.py", {"every": 5}),
    "float64": ("plain.py", {"float64": True}),
    "drawn": ("drawn.py", {}),
    "drawn, float64": ("drawn.py", {"float64": True}),
    "drawn in halves, float64": ("drawn.py halves", {"float64": True}),
    "shaped, float64": ("shaped.py", {"float64": True}),
    "perturbed": ("plain.py", {"perturb": 1}),
    "stopped": ("plain.py", {"stop_after": 2}),
    "whole": ("accumulated.py whole", {}),
    "accumulated": ("accumulated.py", {}),
    "scaled": ("scaled.py", {}),
    "unscaled": ("scaled.py unscale", {}),
    "bare": ("scaled.py bare", {}),
    "manual": ("manual.py", {}),
    "halves": ("manual.py halves", {}),
    "idle": ("manual.py idle", {}),
    "normed": ("manual.py halves norm", {}),
    "grad": ("manual.py grad", {}),
    "closures": ("closures.py", {}),
    "closures in bf16": ("closures.py cast", {"stop_after": 1}),
    "turns": ("several.py", {}),
    "split": ("several.py split", {}),
    "raw": ("odd.py raw", {}),
    "bn": ("odd.py plain", {}),
    "turned": ("odd.py turned", {}),
    "compiled": ("odd.py compiled", {}),
    "bn, float64": ("odd.py plain", {"float64": True}),
    "inductor, float64": ("odd.py inductor", {"float64": True}),
    "parallel": ("odd.py parallel", {}),
    "wrapped": ("odd.py wrapped", {}),
    "frozen": ("odd.py frozen", {}),
    "sparse": ("odd.py sparse", {}),
    "within": ("odd.py within", {}),
    "evaluated": ("odd.py evaluated", {}),
    "narrow": ("odd.py narrow", {}),
    "rehearsed": ("rehearsed.py", {}),
    "arguments": ("arguments.py", {}),
    "evaluation": ("odd.py evaluation", {}),
    "evaluation-moved": ("odd.py evaluation", {"perturb": 1}),
    "teacher": ("odd.py teacher", {}),
    "checked": ("odd.py checked", {}),
    "checked-moved": ("odd.py checked", {"perturb": 1}),
    "attacked": ("odd.py attacked", {}),
    "raising": ("odd.py raising", {}),
    "growing": ("growing.py", {}),
    "growing-moved": ("growing.py", {"perturb": 1}),
    "in turn": ("in_turn.py", {}),
    "in turn, kept": ("in_turn.py kept", {}),
    "by hand": ("in_turn.py hand", {}),
    "by hand, kept": ("in_turn.py hand kept", {}),
    "in wrappers": ("in_turn.py wrapped", {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_once(tmp_path_factory, "records-of-scripts", CASES)


@pytest.fixture(scope="module")
def records(folder: Path) -> dict[str, list[Rank]]:
    return read_many(folder)


@pytest.mark.parametrize(
    ("name", "products"),
    [("within", "bfloat16"), ("narrow", "bfloat16"), ("evaluated", ""), ("bn", ""), ("closures in bf16", "bfloat16")],
)
def test_a_record_says_in_which_dtype_products_are(records: dict[str, list[Rank]], name: str, products: str) -> None:
    ((header, steps),) = records[name]
    assert header.products == products
    assert len(steps) == (2 if name == "closures in bf16" else 5)


def test_a_model_that_is_trained_in_evaluation_mode_has_its_examples(records: dict[str, list[Rank]]) -> None:
    ((_, right),), ((_, wrong),), ((_, moved),), ((header, taught),) = (
        records[name] for name in ("bn", "evaluation", "evaluation-moved", "teacher")
    )
    assert [step.rows for step in wrong] == [step.rows for step in moved] == [step.rows for step in right]
    assert all(step.counts["evaluated_calls"] == 1 for step in wrong if step.number >= 0)
    weights = [steps[0].stats["weight"]["bits"] for steps in (right, wrong, moved)]
    assert (weights[0] == weights[1]).all() and (weights[1] != weights[2]).any()
    assert not any("evaluated_calls" in step.counts for step in [*right, *taught])
    assert len(header.tensors) == len(records["bn"][0][0].tensors)


@pytest.mark.parametrize("name", ["checked", "attacked"])
def test_a_model_that_is_evaluated_beside_its_training_is_not_trained_so(
    records: dict[str, list[Rank]], name: str
) -> None:
    ((_, right),), ((_, evaluated),) = records["bn"], records[name]
    assert [step.rows for step in evaluated] == [step.rows for step in right]
    assert not any("evaluated_calls" in step.counts for step in evaluated)


def test_weights_are_perturbed_where_the_model_was_evaluated_before(records: dict[str, list[Rank]]) -> None:
    ((_, steps),), ((_, moved),) = records["checked"], records["checked-moved"]
    assert (steps[0].stats["weight"]["bits"] != moved[0].stats["weight"]["bits"]).any()


def test_a_plain_script_is_recorded_whole(records: dict[str, list[Rank]]) -> None:
    ((header, steps),) = records["plain"]
    assert [each.name for each in header.tensors] == [f"{n}.{kind}" for n in (0, 2, 3) for kind in ("weight", "bias")]
    assert [each.layer for each in header.tensors[::2]] == ["Linear", "LayerNorm", "Linear"]
    assert [step.number for step in steps] == [*range(-1, 12)]
    assert steps[1].scalars["lr"] == 0.01 and steps[1].scalars["betas.1"] == 0.999 and steps[6].scalars["lr"] == 0.001
    assert steps[1].scalars["clip_max_norm"] == 1.0 and steps[1].scalars["clip_norm"] > 1
    assert steps[1].counts.keys() == {"schedule_steps", "target_kinds"} and steps[1].counts["schedule_steps"] == 1
    assert math.isclose(np.sqrt(steps[1].stats["gradient"]["square"].sum()), 1.0, rel_tol=1e-5)  # after clipping
    assert steps[1].rows == steps[5].rows and len(set(steps[1].rows)) == 16  # the second epoch


def test_seldom_still_has_every_loss(records: dict[str, list[Rank]]) -> None:
    (_, every), (_, seldom) = records["plain"][0], records["seldom"][0]
    assert [step.losses for step in every] == [step.losses for step in seldom]
    assert [step.number for step in seldom if step.stats is None] == [11]


def test_what_is_only_tried_out_is_no_step_and_modes_see_no_hook(records: dict[str, list[Rank]]) -> None:
    ((header, steps),) = records["rehearsed"]
    assert [each.name for each in header.tensors] == ["0.weight", "0.bias"]
    assert len(steps) == 5 and all(step.losses and step.rows and step.stats for step in steps[1:])


def test_arguments_of_every_kind_reach_autograd_and_the_optimizer(records: dict[str, list[Rank]]) -> None:
    ((header, steps),) = records["arguments"]
    shapes = {each.name: (each.piece.shape, each.dtype) for each in header.tensors}
    assert shapes["outer"] == ((4, 3, 2), "float32")  # of complex numbers
    assert len(steps) == 4 and all(
        len(step.losses) == 4 and len(step.rows) == 8 + 8 for step in steps[1:]
    )  # sparse, dense
    assert all(np.isfinite(step.stats["gradient"]["square"]).all() for step in steps[1:])


def test_float64_is_float64(records: dict[str, list[Rank]]) -> None:
    ((header, steps),) = records["float64"]
    assert header.is_float64 and {each.dtype for each in header.tensors} == {"float64"}
    assert steps[1].losses[0] != float(np.float32(steps[1].losses[0]))


def test_float64_draws_what_float32_draws(records: dict[str, list[Rank]]) -> None:
    """Weights, examples, targets and dropout: the pass in float64 decided nothing where one of them was another."""
    one, wide = records["drawn"], records["drawn, float64"]
    assert distance(one, wide) < 1e-4
    assert all(examples(one, place) == examples(wide, place) for place in range(1, 5))
    assert 0 < distance(wide, records["drawn in halves, float64"]) < 1e-12


def test_float64_takes_no_kernels_that_tell_dtypes_by_their_names(records: dict[str, list[Rank]]) -> None:
    """Inductor's made a loss of 1.6e-319."""
    assert distance(records["bn, float64"], records["inductor, float64"]) < 1e-12


def test_float64_leaves_the_shapes_that_a_layer_is_given(records: dict[str, list[Rank]]) -> None:
    (header, steps), *_ = records["shaped, float64"]
    assert header.is_float64 and [step.number for step in steps] == [-1, 0, 1]


def test_float64_starts_tensors_of_no_module_with_weights(tmp_path: Path) -> None:
    """Their graph is there when they are seen, and one of them is a scalar."""
    weights = str(tmp_path / "initial.npz")
    float64: dict[str, object] = {"weights_from": weights, "float64": True}
    found = run_many(tmp_path, {"own": ("drawn.py leaves", {}), "saved": ("drawn.py leaves", {"weights_to": weights})})
    assert distance(found["own"], run_many(tmp_path, {"wide": ("drawn.py leaves", float64)})["wide"]) < 1e-4


def test_a_perturbation_moves_every_weight_by_its_last_bit(records: dict[str, list[Rank]]) -> None:
    (header, plain), (_, moved) = records["plain"][0], records["perturbed"][0]
    assert records["perturbed"][0][0].perturbed == 1
    for tensor, one, other in zip(header.tensors, plain[0].stats["weight"], moved[0].stats["weight"], strict=True):
        if one["square"] and tensor.piece.size[0] > 4:  # a few last bits may add up to nothing
            assert one["bits"] != other["bits"], tensor.name
        apart = np.sqrt(np.mean((one["projections"].astype(float) - other["projections"]) ** 2))
        assert apart <= 4 * 2**-23 * np.sqrt(one["square"])
    assert abs(loss(records["plain"], 1) - loss(records["perturbed"], 1)) < 1e-5


def test_a_run_that_is_stopped_has_the_same_first_steps(records: dict[str, list[Rank]]) -> None:
    (_, steps), (_, whole) = records["stopped"][0], records["plain"][0]
    assert [step.number for step in steps] == [-1, 0, 1]
    assert all((a.stats["weight"] == b.stats["weight"]).all() for a, b in zip(steps, whole[:3], strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("whole", "accumulated"),
        ("manual", "halves"),
        ("manual", "idle"),
        ("bn", "compiled"),
        ("bn", "parallel"),
        ("bn", "wrapped"),
    ],
)
def test_the_same_steps_have_the_same_record(records: dict[str, list[Rank]], one: str, other: str) -> None:
    assert distance(records[one], records[other]) < 2e-6
    for place in range(1, len(records[one][0][1])):
        assert examples(records[one], place) == examples(records[other], place)


def test_statistics_of_a_batch_are_no_initial_weights(records: dict[str, list[Rank]], folder: Path) -> None:
    """The first forward pass has moved the buffers of BatchNorm before the first update: other data are what differs."""
    verdict = judge(read_run(folder / "bn"), read_run(folder / "turned"))
    assert verdict.first is not None and (verdict.first.step, verdict.first.phase) == (0, "data")


def test_the_losses_of_micro_batches_add_up(records: dict[str, list[Rank]]) -> None:
    for name in ("halves", "normed"):
        (_, steps) = records[name][0]
        assert [len(step.losses) for step in steps] == [0, 2, 2, 2, 2, 2]
    assert loss(records["halves"], 1) == pytest.approx(loss(records["manual"], 1), rel=1e-6)


def test_a_scaler_changes_nothing_but_the_steps_it_skips(records: dict[str, list[Rank]]) -> None:
    (_, bare), (_, scaled) = records["bare"][0], records["scaled"][0]
    assert scaled[1].losses == pytest.approx(bare[1].losses)
    np.testing.assert_allclose(scaled[1].stats["gradient"]["square"], bare[1].stats["gradient"]["square"], rtol=1e-5)
    assert [step.is_skipped for step in scaled] == [False, False, True, False, False, False]
    assert scaled[1].scalars["loss_scale"] == 1024 and scaled[3].scalars["loss_scale"] == 512
    assert (scaled[2].stats["weight"] == scaled[1].stats["weight"]).all()
    assert records["unscaled"][0][1][1].scalars["clip_norm"] == pytest.approx(
        math.sqrt(bare[1].stats["gradient"]["square"].sum()), rel=1e-5
    )


def test_gradients_that_no_parameter_holds(records: dict[str, list[Rank]]) -> None:
    (_, manual), (_, grad) = records["manual"][0], records["grad"][0]
    assert [step.number for step in grad] == [step.number for step in manual]
    for one, other in zip(grad[1:], manual[1:], strict=True):
        assert one.losses == pytest.approx(other.losses, rel=1e-6) and one.rows == other.rows
        assert is_alike(one.stats["weight"], other.stats["weight"])
        assert not np.isnan(one.stats["gradient"]["square"]).any()
        ratio = np.linalg.norm(one.stats["gradient"]["projections"], axis=1) / np.linalg.norm(
            other.stats["gradient"]["projections"], axis=1
        )
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)  # it is seen before the script itself clips it
        assert ratio[0] >= 1


def is_alike(one: np.ndarray, other: np.ndarray) -> bool:
    return np.allclose(one["projections"], other["projections"], atol=1e-5)


def test_of_closures_the_first_call_counts(records: dict[str, list[Rank]]) -> None:
    ((_, steps),) = records["closures"]
    assert [len(step.losses) for step in steps] == [0, 1, 1, 1]
    assert all(len(step.rows) == 16 for step in steps[1:])
    assert loss(records["closures"], 3) < loss(records["closures"], 1) / 100


def test_optimizers_that_take_turns_take_steps_of_their_own(records: dict[str, list[Rank]]) -> None:
    (header, steps), (_, split) = records["turns"][0], records["split"][0]
    assert len(steps) == 1 + 8 and len(split) == 1 + 4
    has = [[not math.isnan(each) for each in step.stats["gradient"]["square"]] for step in steps[1:3]]
    assert has == [[False, False, True, True], [True, True, False, False]]
    assert steps[2].rows is None  # what the generator made is no data
    assert split[1].scalars["lr"] == 0.1 and split[1].scalars["lr/1"] == 0.01
    assert not np.isnan(split[1].stats["gradient"]["square"]).any()
    assert header.tensors[0].name == "Linear.weight"


def test_odd_parameters(records: dict[str, list[Rank]]) -> None:
    assert [each.name for each in records["raw"][0][0].tensors] == ["weight"]
    header, steps = records["frozen"][0]
    assert [each.is_trained for each in header.tensors][:3] == [False, False, True]
    assert np.isnan(steps[1].stats["gradient"]["square"][:2]).all()
    assert [each.name for each in header.tensors if each.role == "buffer"] == ["1.running_mean", "1.running_var"]
    assert not np.isnan(records["sparse"][0][1][1].stats["gradient"]["square"]).any()


def test_steps_go_on_after_one_that_an_optimizer_refused(records: dict[str, list[Rank]]) -> None:
    ((_, plain),), ((_, steps),) = records["bn"], records["raising"]
    assert [(each.number, each.losses, each.rows) for each in steps] == [
        (each.number, each.losses, each.rows) for each in plain
    ]


def test_parameters_that_are_made_later_are_added(records: dict[str, list[Rank]]) -> None:
    ((header, steps),) = records["growing"]
    names = [each.name for each in header.tensors]
    assert names == [f"{part}.{kind}" for part in ("body", "head", "adapter") for kind in ("weight", "bias")]
    assert [len(step.stats["weight"]) for step in steps] == [6] * 5
    has = [[not math.isnan(each) for each in step.stats["gradient"]["square"][3:5]] for step in steps[1:]]
    assert has == [[True, False], [True, False], [True, True], [True, True]]
    adapter = [step.stats["weight"][4] for step in steps]
    assert adapter[0] == adapter[2] != adapter[3] != adapter[4] and adapter[0]["square"] > 0
    assert [step.scalars.get("lr/1") for step in steps[1:]] == [None, None, 0.01, 0.01]
    assert len(records["growing-moved"][0][1]) == 5


@pytest.mark.parametrize("name", ["in turn", "by hand"])
def test_models_that_are_deleted_are_recorded_as_those_that_are_kept(records: dict[str, list[Rank]], name: str) -> None:
    """The script itself sees that they are gone."""
    (header, steps), (kept, of_kept) = records[name][0], records[f"{name}, kept"][0]
    assert [each.name for each in header.tensors] == [each.name for each in kept.tensors]
    assert len(header.tensors) == 3 * 8 and len(steps) == len(of_kept) == 1 + 9
    for one, other in zip(steps, of_kept, strict=True):
        assert (one.losses, one.scalars, one.counts, one.rows) == (
            other.losses,
            other.scalars,
            other.counts,
            other.rows,
        )
        for phase in one.stats.keys() & {"gradient", "weight", "updated"}:
            for name in one.stats[phase].dtype.names:
                np.testing.assert_array_equal(one.stats[phase][name], other.stats[phase][name])


def test_a_model_that_is_wrapped_anew_at_each_step_is_one(records: dict[str, list[Rank]]) -> None:
    ((header, steps),) = records["in wrappers"]  # the script counts how often its objects are looked through
    assert [each.name for each in header.tensors] == ["0.weight", "0.bias"] and len(steps) == 1 + 9


def test_a_record_holds_nothing_of_the_data(records: dict[str, list[Rank]]) -> None:
    ((header, steps),) = records["plain"]
    kept = {field.name for field in dataclasses.fields(header)}
    assert kept == {
        "schema", "framework", "command", "directory", "versions", "environment", "rank", "world", "tensors", "is_float64",
        "perturbed", "layouts", "products", "is_cast", "is_from_input",
    }  # fmt: skip
    assert set(header.environment) <= set(DECIDING)
    assert {array.dtype.itemsize for step in steps for array in (step.stats or {}).values()} == {48}
    assert all(0 <= row < 2**64 for step in steps for row in step.rows or ())


def test_a_run_starts_with_the_weights_of_another(records: dict[str, list[Rank]], tmp_path: Path) -> None:
    weights = str(tmp_path / "initial.npz")
    cases = {
        "saved": ("plain.py", {"weights_to": weights, "stop_after": 0}),
        "loaded": ("plain.py", {"weights_from": weights, "perturb": 5, "stop_after": 1}),
        "float64": ("plain.py", {"weights_from": weights, "float64": True, "stop_after": 1}),
    }
    found = run_many(tmp_path, cases)
    assert found["saved"] == []
    assert distance([(records["plain"][0][0], records["plain"][0][1][:2])], found["loaded"]) < 3e-6
    initial = joined(found["float64"], 0)
    for key, (projections, square, _) in joined(records["plain"], 0).items():
        np.testing.assert_allclose(projections, initial[key][0], atol=1e-6 * max(square, 1e-30) ** 0.5)


def test_processes_and_threads(tmp_path: Path) -> None:
    cases = {name: (f"processes.py {name}", {}) for name in ("forked", "left", "threads", "turns")}
    notes = tmp_path / "notes"
    notes.touch()
    cases["threads"][1]["notes"] = str(notes)
    found = run_many(tmp_path, {"workers": ("workers.py", {})} | cases)
    assert len(found["workers"]) == 1 and len(found["workers"][0][1]) == 1 + 2
    assert [len(steps) for _, steps in found["forked"]] == [1 + 4, 1 + 4]
    assert len(found["left"][0][1]) == 1 + 4
    ((_, steps),) = found["threads"]
    assert [step.number for step in steps] == [*range(-1, 4)]
    assert all(len(step.losses) == 1 and len(step.rows) == 4 for step in steps[2:])
    assert "several threads train at the same time" in notes.read_text()
    ((_, steps),) = found["turns"]
    assert [step.number for step in steps] == [*range(-1, 8)]
    assert all(len(step.losses) == 1 and len(step.rows) == 4 for step in steps[1:])
