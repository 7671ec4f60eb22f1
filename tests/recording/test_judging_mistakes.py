"""Every known mistake is named when it is made, and no other one is."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from museum.reenacted.table import REENACTED
from samestep.common.errors import ConfigError
from samestep.common.judging.recorded.inputs import ALL_ARGUMENTS
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.notes import find_notes
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.walk import Walk
from samestep.common.judging.recorded.yardstick import Yardstick, measure
from samestep.common.mistakes.table import MISTAKES
from samestep.common.steps.projections import Piece
from samestep.common.steps.recorded_run import RecordedRun, RunStep, Sums
from tests.recording.judged import diff, reruns_of, run_of
from tests.recording.numpy_script import Script
from tests.recording.stranger_pairs import BETWEEN, GUESTS, KERAS_PAIRS, NEWCOMERS, PAIRS

TWO, FOUR = {"world": 2}, {"passes": 4}
MADE = {
    "sum_for_mean": TWO,
    "divided_by_microbatches": FOUR,
    "mean_twice": TWO,
    "root_of_processes": TWO,
    "loss_not_scaled": {"loss_scale": 1024.0},
    "missing_gradients": TWO,
    "updated_again": {},
    "gradients_not_cleared": {},
    "partial_on_replicated": TWO,
    "gradients_rounded_to_bf16": TWO,
    "gradients_rounded_to_fp16": TWO,
    "forgotten_exchange": TWO,
    "mean_of_means": FOUR | {"uneven": True},
    "last_window_divided_by_all": FOUR,
    "clip_forgotten": {"clip": 0.05},
    "clip_before_unscaling": {"clip": 0.05, "loss_scale": 1024.0},
    "clip_by_local_norm": {"clip": 0.05, "world": 2},
    "loss_scaled_before_clipping": {"clip": 0.05},
    "clip_on_one_rank": {"clip": 0.05, "world": 2},
    "same_data_on_every_worker": TWO,
    "padded_sample_twice": TWO,
    "shares_given_other_data": TWO | {"layouts": ("tp",)},
    "dropped_shard": {},
    "same_order_each_epoch": {},
    "position_lost": {},
    "other_order": {},
    "other_loss": {},
    "evaluation_mode": {},
    "stray_gradients": {},
    "targets_differ": {"sees_targets": True},
    "rate_by_processes": TWO,
    "schedule_runs_n_times": TWO,
    "other_hyperparameter": {},
    "scalars_differ_by_rank": TWO,
    "unused_parameters_drift": {},
    "weights_do_not_move": {},
    "frozen_statistics_move": {},
    "update_times": {},
    "replicas_drift": TWO,
    "decay_each_microbatch": FOUR,
    "other_decay": {},
    "loss_divided_by_processes": TWO,
    "times_microbatches": FOUR,
    "times_targets": {},
    "other_statistics": {"moves_statistics": True},
    "statistics_stand_still": TWO | {"moves_statistics": True},
    "clip_each_microbatch": FOUR | {"clip": 0.05},
    "loss_times": {},
    "schedule_shifted": {},
    "steps_of_microbatches": FOUR,
    "no_bias_correction": {},
    "bias_correction": {},
    "decay_without_weight": {},
    "schedule_restarted": {},
    "optimizer_state_lost": {},
    "step_count_lost": {},
}
OF_ADAM = (
    "steps_of_microbatches",
    "no_bias_correction",
    "bias_correction",
    "optimizer_state_lost",
    "step_count_lost",
)
CUT_ALIKE = ("last_window_divided_by_all", "clip_each_microbatch")
"""With as many micro-batches in the right script as in the wrong one."""
COMMON = ("layouts", "clip", "uneven", "loss_scale", "moves_statistics", "sees_targets")
PLACES = {
    "mean_of_means": (None, "loss"),
    "last_window_divided_by_all": (5, "loss"),
    "padded_sample_twice": (1, "data"),
    "same_order_each_epoch": (3, "data"),
    "stray_gradients": (1, "gradient"),
    "targets_differ": (0, "data"),
    "position_lost": (2, "data"),
    "schedule_runs_n_times": (1, "hyper-parameters"),
    "clip_on_one_rank": (0, "replicas"),
    "gradients_not_cleared": (1, "gradient"),
    "updated_again": (1, "gradient"),
    "decay_each_microbatch": (0, "update"),
    "sum_for_mean": (0, "gradient"),
    "clip_forgotten": (0, "clipping"),
}


def common_of(name: str) -> dict[str, object]:
    """What the right script has of the wrong one."""
    common = {key: value for key, value in MADE[name].items() if key in COMMON}
    return common | (FOUR if name in CUT_ALIKE else TWO if "layouts" in common else {})


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [(name, kind) for name in MADE for kind in ("adam", "sgd") if kind == "adam" or name not in OF_ADAM],
)
def test_it_is_named(name: str, optimizer: str) -> None:
    a = Script(seed=int(optimizer == "sgd"), optimizer=optimizer, **common_of(name))
    verdict = diff(a, dataclasses.replace(a, **MADE[name], mistake=name))
    assert [cause.name for cause in verdict.causes] == [name], verdict.headline
    assert (verdict.kind, verdict.exit_code) == ("named", 4)
    step, phase = PLACES.get(name, (None, verdict.first.phase))
    assert verdict.first.phase == phase and step in (None, verdict.first.step)


@pytest.mark.parametrize("name", ["sum_for_mean", "clip_forgotten", "decay_each_microbatch", "other_loss"])
def test_evaluation_mode_is_named_only_where_nothing_explains_more(name: str) -> None:
    """A factor, a clipping or a decay explains every number; the mode and other targets say only that they differ."""
    a = Script(**common_of(name))
    one, other = (run_of(each) for each in (a, dataclasses.replace(a, **MADE[name], mistake=name)))
    steps = [dataclasses.replace(step, counts={**step.counts, "evaluated_calls": 1}) for step in other.steps]
    pairing = pair(one, other)
    reruns = reruns_of(a)
    verdict = judge(one, dataclasses.replace(other, steps=steps), measure(one, reruns, pairing))
    expected = "evaluation_mode" if name == "other_loss" else name
    assert [cause.name for cause in verdict.causes] == [expected], verdict.headline


@pytest.mark.parametrize("side", "AB")
def test_what_a_scaler_skips_is_no_mistake_of_what_an_optimizer_holds(side: str) -> None:
    """Nothing moves in a step that overflows, and its gradients may be those of the step before."""
    one, other = (run_of(Script(mistake=each)) for each in ("", "weights_do_not_move"))
    skipped = dataclasses.replace(other, steps=[dataclasses.replace(step, is_skipped=True) for step in other.steps])
    a, b = (one, skipped) if side == "B" else (skipped, one)
    reruns, pairing = reruns_of(Script()), pair(a, b)
    verdict = judge(a, b, measure(a, reruns, pairing))
    said = f"not the same: step 0, update: the gradient scaler of {side} alone skipped the update"
    assert (verdict.kind, verdict.causes) == ("unnamed", ()) and verdict.headline.startswith(said)


@pytest.mark.parametrize(
    ("worlds", "expected"),
    [
        ((2, 2), "ranks 0 and 1 of B were given different examples"),
        ((4, 4), "ranks 0 and 1 of B were given different examples"),  # and not 2 and 3, which share theirs
        ((4, 2), "some ranks of B were given different examples"),
        ((2, 4), None),
    ],
)
def test_the_ranks_are_named_that_hold_parts_of_the_same_layers(worlds: tuple[int, int], expected: str | None) -> None:
    a = Script(layouts=("tp",), world=worlds[0], steps=1)
    b = dataclasses.replace(a, world=worlds[1], mistake="shares_given_other_data")
    verdict = diff(a, b, is_measured=False)
    named = next((cause.sentence for cause in verdict.causes if cause.name == "shares_given_other_data"), None)
    assert (named and named.partition(",")[0]) == expected
    right = dataclasses.replace(b, mistake="dropped_shard")
    assert "shares_given_other_data" not in [cause.name for cause in diff(a, right, is_measured=False).causes]


def test_a_whole_root_may_be_another_number() -> None:
    """Of a mesh of 2 x 2 processes, whose gradients a script divides by 2 once more, B's root was blamed."""
    a = Script(world=4)
    verdict = diff(a, dataclasses.replace(a, mistake="root_of_processes"))
    assert "every gradient is 2.000 x A's" in verdict.headline and not verdict.causes


def test_a_factor_is_found_before_clipping() -> None:
    """B's gradients are 0.8 times A's, which alone are clipped."""
    free = run_of(Script(clip=1e9))
    (norm,) = (step.scalars["clip_norm"] for step in free.steps if step.number == 0)
    a = Script(clip=0.9 * norm)
    verdict = diff(a, dataclasses.replace(a, mistake="loss_times"))
    assert [cause.name for cause in verdict.causes] == ["loss_times"], verdict.headline
    assert "every gradient of B are 0.800 times A's, before clipping: " in verdict.headline


def test_clipping_each_microbatch_is_named_where_the_other_never_clips() -> None:
    b = Script(**MADE["clip_each_microbatch"], mistake="clip_each_microbatch")
    verdict = diff(Script(**FOUR), b)
    assert [cause.name for cause in verdict.causes] == ["clip_each_microbatch"], verdict.headline
    assert "B clips its gradients 4 times in a step, once after each micro-batch, and A never" in verdict.headline


def test_clipping_that_may_never_have_reached_its_bound_is_no_cause() -> None:
    a, bound = Script(**FOUR), {"clip_norm": 1.0, "clip_max_norm": 100.0, "clip_calls": 4}
    other = run_of(dataclasses.replace(a, mistake="gradients_off_at_random"))
    steps = [dataclasses.replace(step, scalars=step.scalars | bound) for step in other.steps]
    one, pairing = run_of(a), pair(run_of(a), other)
    verdict = judge(one, dataclasses.replace(other, steps=steps), measure(one, reruns_of(a), pairing))
    assert (verdict.kind, verdict.first.phase) == ("unnamed", "gradient"), verdict.headline


def test_each_of_the_table_is_made_here_or_reenacted() -> None:
    others = {
        # in tests/common/mistakes: the scripts here have none of them
        *("unbiased_statistics", "rate_in_velocity", "epsilon_before_correction"),
        *(row.expected for row in REENACTED if row.expected),
        *(name for *_, name, _ in (*PAIRS, *NEWCOMERS, *GUESTS, *BETWEEN, *KERAS_PAIRS)),
    }
    assert {mistake.name for mistake in MISTAKES} == {*MADE, *others, "loss_summed"} - {"same", "named", "unnamed"}


@pytest.mark.parametrize(
    ("loss", "mistake", "expected"),
    [
        (lambda loss: 2 * loss, "", "same, but for the loss: 6 steps"),
        (lambda loss: loss + 0.5, "", "same, but for the loss: 6 steps"),
        (lambda loss: 2 * loss, "gradients_not_cleared", "not the same: step 1, gradient, layer "),
        (lambda loss: 2 * loss, "decay_each_microbatch", "not the same: step 0, update, layer "),
        (
            lambda loss: 1.00001 * loss,
            "",
            "not the same: step 0, loss: the loss of B is 1.00001000 times A's, and every ",
        ),
    ],
)
def test_a_loss_that_no_gradient_shows_is_no_other_step(
    loss: Callable[[float], float], mistake: str, expected: str
) -> None:
    """As where a script scales its loss by hand. What differs by less than a gradient would show stays a difference."""
    a = Script(**FOUR)
    one, other = (run_of(each) for each in (a, dataclasses.replace(a, mistake=mistake)))
    steps = [dataclasses.replace(each, loss=None if each.loss is None else loss(each.loss)) for each in other.steps]
    reruns, pairing = (
        reruns_of(a),
        pair(one, other),
    )
    verdict = judge(one, dataclasses.replace(other, steps=steps), measure(one, reruns, pairing))
    assert verdict.headline.startswith(expected)
    assert (verdict.but_for == ("the loss",)) is any("B has another loss" in note for note in verdict.notes)
    assert bool(verdict.but_for) is ("step 0, loss" not in expected)


@pytest.mark.parametrize(
    ("unseen", "other_target", "mistaken_from", "expected"),
    [
        ({2, 4}, None, 6, "same, but for the loss: 6 steps"),
        ({2, 4, 5}, None, 6, "same, but for the loss: 4 steps"),
        ({2, 4}, None, 2, "not the same: step 3, loss: "),
        ({2, 4}, 2, 6, "not the same: step 2, data: the targets of 1 of "),
    ],
)
def test_a_loss_that_alone_changes_is_judged_at_the_next_step_that_is_looked_at(
    unseen: set[int], other_target: int | None, mistaken_from: int, expected: str
) -> None:
    """As where a script adds a number to its loss, and --every leaves steps out."""
    a = Script(sees_targets=True)
    one, wrong = (run_of(dataclasses.replace(a, mistake=each)) for each in ("", "gradients_not_cleared"))
    sides: list[list[RunStep]] = [[], []]
    for own, bad in zip(one.steps, wrong.steps, strict=True):
        other = bad if own.number >= mistaken_from else own
        other = other if other.loss is None else dataclasses.replace(other, loss=other.loss + 0.5)
        if own.number == other_target:
            other = dataclasses.replace(other, targets={0: (7, *other.targets[0][1:])})
        for side, step in zip(sides, (own, other), strict=True):
            side.append(dataclasses.replace(step, sums=None) if own.number in unseen else step)
    verdict = judge(*(dataclasses.replace(one, steps=each) for each in sides))
    assert verdict.headline.startswith(expected)
    assert any("from step 4 on" in note for note in verdict.notes) is expected.endswith("loss: 4 steps")


def test_targets_that_differ_are_no_loss_that_is_scaled() -> None:
    """The gradient of an absolute difference is its sign."""
    one = run_of(Script(sees_targets=True))
    others = [
        dataclasses.replace(step, loss=2 * step.loss, targets={0: (7, *step.targets[0][1:])}) if step.loss else step
        for step in one.steps
    ]
    verdict = judge(one, dataclasses.replace(one, steps=others))
    assert (verdict.exit_code, verdict.first.phase) == (4, "data")


@pytest.mark.parametrize(
    "mistake", [each for each in MISTAKES if each.has_sides and each.name in MADE], ids=lambda each: each.name
)
def test_it_is_named_in_a_as_well(mistake: object) -> None:
    made = MADE[mistake.name]
    b = Script(**common_of(mistake.name))
    verdict = diff(dataclasses.replace(b, **made, mistake=mistake.name), b)
    assert mistake.name in [cause.name for cause in verdict.causes], verdict.headline


def test_numbers_that_are_equal_are_not_told_apart() -> None:
    """With 2 processes of 2 micro-batches each, twice the gradient may be of either."""
    a = Script()
    verdict = diff(a, dataclasses.replace(a, world=2, passes=2, mistake="sum_for_mean"))
    assert {cause.name for cause in verdict.causes} == {"sum_for_mean", "divided_by_microbatches"}


def test_a_last_window_is_told_from_numbers_that_it_equals() -> None:
    """Twice two processes are four as well, but they would have shown in the windows before."""
    a = Script(world=2, passes=4)
    verdict = diff(a, dataclasses.replace(a, mistake="last_window_divided_by_all"))
    assert [cause.name for cause in verdict.causes] == ["last_window_divided_by_all"]


def test_other_initial_weights_come_first() -> None:
    a = Script()
    verdict = diff(a, dataclasses.replace(a, mistake="other_seed"))
    assert (verdict.kind, verdict.need, verdict.first.phase, verdict.first.step) == (
        "named",
        "weights",
        "initial weights",
        -1,
    )
    assert verdict.first.layer == "net.head"


def test_unknown_mistakes_are_located_and_not_named() -> None:
    a = Script()
    verdict = diff(a, dataclasses.replace(a, mistake="one_norm_off"))
    assert (verdict.kind, verdict.causes) == ("unnamed", ())
    assert verdict.headline == (
        "not the same: step 0, gradient, layer net.norm: the gradient of net.norm.weight alone differs: it is 1.00100 x A's"
    )


def test_names_are_matched_without_what_wrappers_add() -> None:
    a = Script(steps=2)
    assert diff(a, dataclasses.replace(a, prefix="module.")).kind == "same"
    assert diff(a, dataclasses.replace(a, prefix="my_model.")).kind == "same"  # by shape and order


def test_a_port_with_a_tensor_more_is_paired_by_what_its_weights_start_from() -> None:
    """As PyTorch's LSTM, which has two biases where that of Keras has one."""
    a = run_of(Script(steps=2))
    more, steps = dataclasses.replace(a.tensors[0], piece=Piece.whole((3,))), []
    for step in a.steps:
        sums = {
            phase: Sums(*(np.concatenate([each[:1] * 0, each]) for each in (seen.projections, seen.square, seen.bits)))
            for phase, seen in (step.sums or {}).items()
        }
        steps.append(dataclasses.replace(step, sums=sums))
    tensors = [dataclasses.replace(each, name=f"x{number}") for number, each in enumerate((more, *a.tensors))]
    b = dataclasses.replace(a, header=dataclasses.replace(a.header, tensors=tuple(tensors)), steps=steps)
    found = pair(a, b)
    assert found.places[1].tolist() == [*range(1, len(tensors))]
    assert (found.only_a, found.only_b) == ((), ("x0",))


def test_records_of_different_models_are_refused() -> None:
    a, b = (run_of(Script(steps=1)) for _ in range(2))
    foreign = [dataclasses.replace(t, name=f"x{n}", piece=Piece.whole((n + 2,))) for n, t in enumerate(b.tensors)]
    b = dataclasses.replace(b, header=dataclasses.replace(b.header, tensors=tuple(foreign)))
    with pytest.raises(ConfigError, match="are records of different models"):
        pair(a, b)


def test_other_versions_are_said_and_change_nothing() -> None:
    a, b = (run_of(Script(steps=1)) for _ in range(2))
    b = dataclasses.replace(b, header=dataclasses.replace(b.header, versions={"torch": "2.12"}))
    verdict = judge(a, b)
    assert (verdict.kind, verdict.notes) == ("same", ("versions of A and B: torch none and 2.12",))


def test_other_shapes_are_said() -> None:
    a, b = (run_of(Script(steps=1)) for _ in range(2))
    wider = [dataclasses.replace(t, piece=Piece.whole((9,))) if t.name == "net.head.bias" else t for t in b.tensors]
    extra = dataclasses.replace(b.tensors[0], name="net.extra")
    b = dataclasses.replace(b, header=dataclasses.replace(b.header, tensors=(*wider, extra)))
    assert find_notes(Walk(a, b, Yardstick(1.0, pair(a, b)))) == (
        "in A and B, net.head.bias is (5,) and (9,)",
        "only B has net.extra",
    )


def test_models_of_other_shapes_are_not_told_to_start_alike() -> None:
    a, b = (run_of(Script(steps=1, mistake=each)) for each in ("", "other_seed"))
    wider = [dataclasses.replace(t, piece=Piece.whole((9,))) if t.name == "net.head.bias" else t for t in b.tensors]
    assert judge(a, b).need == "weights"
    assert judge(a, dataclasses.replace(b, header=dataclasses.replace(b.header, tensors=tuple(wider)))).need == "model"


def test_steps_that_only_one_has_are_said() -> None:
    a, b = run_of(Script(steps=2)), run_of(Script(steps=3))
    for one, other, longer in ((a, b, "B"), (b, a, "A")):
        verdict = judge(one, other)
        assert (verdict.kind, verdict.num_steps) == ("same", 2)
        assert verdict.notes == (f"only {longer} has steps after step 1, which are not compared",)


def test_two_precisions_are_not_compared() -> None:
    a = Script(steps=2)
    with pytest.raises(ConfigError, match="float64 and the other is not"):
        diff(a, dataclasses.replace(a, dtype="float64"))


def test_gradients_that_are_not_exchanged_have_a_name_where_the_tensors_have_others() -> None:
    """Such as those of a pipeline, whose later stages are named after their ranks, beside a whole model."""
    found = diff(Script(), Script(**TWO, mistake="forgotten_exchange", prefix="rank1."), is_measured=False)
    assert [cause.name for cause in found.causes] == ["forgotten_exchange"], found.headline


def test_a_mean_of_means_says_what_weights_of_classes_are_others() -> None:
    def weighted(run: RecordedRun) -> RecordedRun:
        return dataclasses.replace(run, steps=[dataclasses.replace(s, class_weights=frozenset({7})) for s in run.steps])

    uneven = Script(**FOUR, uneven=True)
    a, b = (run_of(dataclasses.replace(uneven, mistake=mistake)) for mistake in ("", "mean_of_means"))
    for own, said in (
        (b, "hides whether anything else differs"),
        (weighted(b), "function of B alone is given class weights"),
    ):
        (cause,) = judge(a, own).causes
        assert cause.name == "mean_of_means" and said in cause.sentence


def test_what_one_step_lacks_and_later_epochs_have_is_missing() -> None:
    found = diff(Script(**TWO), Script(**TWO, mistake="two_short"), is_measured=False)
    assert [cause.name for cause in found.causes] == ["dropped_shard"], found.headline
    assert "B is missing 2 examples out of A's 16" in found.headline


def test_a_batch_that_is_filled_up_with_several_examples_of_an_earlier_one_is_padded() -> None:
    found = diff(Script(**TWO, mistake="two_short"), Script(**TWO, mistake="filled_up"), is_measured=False)
    assert [cause.name for cause in found.causes] == ["padded_sample_twice"], found.headline
    assert "B repeats 2 examples of A's on rank 1" in found.headline


def test_half_of_the_examples_twice_for_the_other_half_are_no_padded_batch() -> None:
    found = diff(Script(), Script(mistake="support_for_query"), is_measured=False)
    assert (found.kind, found.first and found.first.phase, found.causes) == ("unnamed", "data", ()), found.headline


def test_a_place_that_is_lost_in_a_later_pass_is_no_order_of_the_pass_before() -> None:
    found = diff(Script(), Script(mistake="position_lost_later"), is_measured=False)
    assert [cause.name for cause in found.causes] == ["position_lost"], found.headline
    assert "step 5, data: B is given the examples of A's step 3" in found.headline


def test_a_shard_is_missing_though_the_loss_is_the_same() -> None:
    """Before a last layer that starts at zero, every example has the same loss; that of A has further targets."""
    a, b = (run_of(Script(sees_targets=True, mistake=mistake)) for mistake in ("", "dropped_shard"))
    losses = {step.number: step.loss for step in a.steps}
    steps = [dataclasses.replace(step, loss=losses[step.number]) for step in b.steps]
    assert [cause.name for cause in judge(a, dataclasses.replace(b, steps=steps)).causes] == ["dropped_shard"]


def test_gradients_that_were_not_exchanged_are_named_though_the_targets_of_each_rank_are_numbered_otherwise() -> None:
    """As where each rank of a contrastive loss tells all examples from each other, and the loss is the same."""
    mistaken = Script(sees_targets=True, mistake="forgotten_exchange", **TWO)
    a, b = (run_of(script) for script in (Script(sees_targets=True), mistaken))
    others = {rank: tuple(range(8 * rank, 8 * rank + 8)) for rank in range(2)}
    steps = [dataclasses.replace(step, targets=step.targets and others) for step in b.steps]
    found = judge(a, dataclasses.replace(b, steps=steps))
    assert [cause.name for cause in found.causes] == ["forgotten_exchange"], found.headline


def test_nothing_is_asked_of_single_arguments_where_what_is_wrong_with_the_examples_is_named() -> None:
    a, b = (run_of(Script(mistake=mistake)) for mistake in ("", "other_order"))
    rows = [step.rows for step in a.steps]
    moved = [dataclasses.replace(step, rows=rows[{1: 3, 3: 1}.get(place, place)]) for place, step in enumerate(b.steps)]
    verdict = judge(a, dataclasses.replace(b, steps=moved))
    assert verdict.kind == "named" and verdict.first.words.startswith("0 of A's 16 examples")
    assert ALL_ARGUMENTS not in verdict.notes
