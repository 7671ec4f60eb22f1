"""Whether a command still takes the steps of its record, before its reruns count."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.judging.recorded.repeating import judge_again
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording import sides
from samestep.experiments.recording.diffing import diff, in_float64, judge_as_kept
from samestep.experiments.recording.rerun_folder import count_steps
from samestep.experiments.recording.reruns import SEEDS, NotRepeated, Reruns
from tests.recording.judged import Fake, recorded, side
from tests.recording.numpy_script import Script


class WithoutSeed(Fake):
    """A script that starts from other weights each time."""

    def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
        self.changes = {"seed": 5 + len(self.runs)}
        super().__call__(command, options, directory, is_quiet)


class WithoutSeedForWorkers(Fake):
    """A script that is given other examples in one run of a few."""

    def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
        self.changes = {"mistake": "other_order"} if len(self.runs) == 3 else {}
        super().__call__(command, options, directory, is_quiet)


@pytest.mark.parametrize("rerun", [WithoutSeed(), WithoutSeedForWorkers()])
def test_a_script_that_does_not_repeat_itself_is_not_judged(tmp_path: Path, rerun: Fake) -> None:
    a, b = (side(Script(flipped=flipped), tmp_path, "A", rerun) for flipped in (False, True))
    found = diff(a, b, 20)
    assert (found.verdict.kind, found.verdict.need) == ("unknown", "seed")
    assert "does not repeat itself" in found.notes[0]


class WithDropout(Fake):
    """A script whose gradients are others in some of its runs."""

    def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
        self.changes = {"mistake": "gradients_off_by_far" if len(self.runs) in (1, 3) else ""}
        super().__call__(command, options, directory, is_quiet)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_random_numbers_without_a_seed_are_told(tmp_path: Path, dtype: str) -> None:
    """In float32 its reruns were the yardstick, and float64 called such a script another one than itself."""
    script, rerun, is_float64 = Script(), WithDropout(), dtype == "float64"
    if is_float64:
        script = dataclasses.replace(script, dtype="float64", is_cast=True)
    elif dtype == "bfloat16":
        script = dataclasses.replace(script, products=dtype)
    a, b = (side(dataclasses.replace(script, mistake=m), tmp_path, "A", rerun) for m in ("", "gradients_off_by_far"))
    found = diff(dataclasses.replace(a, repeated=20 * is_float64), b, 20)
    assert (found.verdict.kind, found.verdict.need) == ("unknown", "seed")
    assert "run twice, its command takes another step each time" in found.notes[0]


@pytest.mark.parametrize(("mistake", "code"), [("", 0), ("off_by_a_little", 4), ("other_order", 4)])
def test_a_script_may_compute_its_examples_from_its_weights(tmp_path: Path, mistake: str, code: int) -> None:
    rerun = Fake()
    a = side(Script(chosen=True), tmp_path, "A", rerun)
    b = side(Script(chosen=True, flipped=True, mistake=mistake), tmp_path, "B", rerun)
    found = diff(a, b, 20)
    assert found.verdict.exit_code == code
    if mistake != "other_order":  # which has a name before anything is run again
        assert rerun.runs.count("again-0-0") == 1 and not any("repeat itself" in each for each in found.notes)
        assert any("computed from the weights" in each for each in found.verdict.notes)


def test_reruns_of_what_computes_its_examples_are_kept_as_a_yardstick(tmp_path: Path) -> None:
    """A page of the two said that A holds no reruns."""
    a, b = (side(Script(chosen=True, flipped=flipped), tmp_path, "AB"[flipped], Fake()) for flipped in (False, True))
    found, (kept, yardstick) = diff(a, b, 20), judge_as_kept(a, b)
    assert yardstick.is_measured and not kept.notes
    assert kept.verdict.headline == found.verdict.headline
    (a.directory / "reruns" / "again-0-0").rename(tmp_path / "gone")
    assert not judge_as_kept(a, b)[1].is_measured  # they may be of a script without a seed


@pytest.mark.parametrize("is_random", [False, True])
def test_reruns_of_b_may_have_other_examples_if_it_computes_them(tmp_path: Path, is_random: bool) -> None:
    """What rounding tips over in B alone was never seen there."""

    class Tipping(Fake):
        def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
            self.changes = {"mistake": "" if options.perturb == 2 else "gradients_off_at_random"}
            self.changes |= {"flipped": is_random and "again" in options.out}
            super().__call__(command, options, directory, is_quiet)

    script = Script(optimizer="sgd", chosen=True)
    a = side(script, tmp_path, "A", Fake())
    b = side(dataclasses.replace(script, mistake="gradients_off_at_random"), tmp_path, "B", Tipping())
    assert diff(a, b, 20).verdict.exit_code == (4 if is_random else 0)


def test_no_rerun_is_longer_than_asked_for_however_late_examples_differ(tmp_path: Path) -> None:
    a, b = (side(Script(), tmp_path, name, Fake()) for name in "AB")
    steps = list(b.run.steps)
    steps[-1] = dataclasses.replace(steps[-1], rows={0: (*steps[-1].rows[0][:-1], 7)})
    found = diff(a, dataclasses.replace(b, run=dataclasses.replace(b.run, steps=steps)), 2)
    assert (found.verdict.kind, found.verdict.first.step) == ("unnamed", 5)
    assert [count_steps(run) for run in a.kept().values()] == [2]


@pytest.mark.parametrize("mistake", ["off_by_a_little", "forgotten_exchange"])
def test_a_script_that_was_edited_is_no_yardstick(tmp_path: Path, mistake: str) -> None:
    """A is the record of a script that now makes the mistake, as it is where a pull request is held against a record."""
    script, edited = Script(world=2), Fake(mistake=mistake)
    a = side(script, tmp_path, "A", edited)
    b = side(dataclasses.replace(script, mistake=mistake), tmp_path, "B", Fake())
    found = diff(a, b, 20)
    assert found.verdict.exit_code == 4 and found.verdict.first.step == 0
    assert "A cannot be run again: its command takes other steps now" in found.notes[0]
    assert "(step 0, gradient, layer net.head)" in found.notes[0] and "Reruns of B measured" in found.notes[0]
    assert not [*(a.directory / "reruns").glob("*-*")] and len([*(b.directory / "reruns").glob("perturbed-*")]) >= 4
    kept, _ = judge_as_kept(a, b)
    assert kept.verdict.headline == found.verdict.headline
    with pytest.raises(Unavailable, match="A cannot be run again in float64: its command takes other steps now"):
        in_float64((a, b))
    corrected = diff(a, side(dataclasses.replace(script, flipped=True), tmp_path, "B", Fake()), 20)
    assert corrected.verdict.exit_code == 0 and "Reruns of B measured" in corrected.notes[0]


def test_another_machine_rounds_otherwise(tmp_path: Path) -> None:
    """The command takes the steps of the record within rounding: that is no other script."""
    rerun = Fake(flipped=True)
    a, b = (side(Script(world=2, mistake=m), tmp_path, "A", rerun) for m in ("", "off_by_a_little"))
    found = diff(a, b, 20)
    assert found.verdict.exit_code == 4 and not found.notes
    assert rerun.runs == ["unchanged-0", *(f"perturbed-{seed}-0" for seed in range(4))]


def test_an_update_that_another_machine_turned_around_is_measured(tmp_path: Path) -> None:
    """Adam's first moves a number by the rate, whichever way; a gradient within rounding of 0 decides which."""
    script = Script(steps=3)
    run, asked = recorded(script, tmp_path), []

    def perturb() -> list:
        asked.append(True)
        return [recorded(dataclasses.replace(script, perturbed=seed), tmp_path) for seed in SEEDS]

    steps = list(run.steps)
    held = steps[1].sums["weight"]
    moved = held.projections.copy()
    moved[[each.name for each in run.tensors].index("net.head.weight")] += 1.9 * script.rate * np.array([1, -1] * 4)
    turned = dataclasses.replace(held, projections=moved, bits=held.bits + 1)
    steps[1] = dataclasses.replace(steps[1], sums={**steps[1].sums, "weight": turned})
    verdict = judge_again(run, dataclasses.replace(run, steps=steps), perturb)
    assert asked and verdict.kind == "same"
    assert judge_again(run, run, perturb).kind == "same" and len(asked) == 1


class Interrupted(Fake):
    """Another diff keeps a rerun of its own meanwhile; then this one is killed before it knows."""

    def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
        if len(self.runs) == 5:
            (Path(options.out).parent / "perturbed-7-0").mkdir()
            raise KeyboardInterrupt
        super().__call__(command, options, directory, is_quiet)


def test_no_rerun_counts_before_the_command_is_known_to_repeat(tmp_path: Path) -> None:
    a, b = (side(Script(), tmp_path, name, Interrupted(mistake="off_by_a_little")) for name in "AB")
    with pytest.raises(KeyboardInterrupt):
        diff(a, dataclasses.replace(b, run=recorded(Script(mistake="one_norm_off"), tmp_path)), 20)
    assert a.rerun.runs[1:] == [f"perturbed-{seed}-0" for seed in SEEDS]
    assert [path.name for path in (a.directory / "reruns").iterdir()] == ["perturbed-7-0"]


def test_what_was_kept_is_the_yardstick_however_the_script_was_edited_since(tmp_path: Path) -> None:
    a, b = (side(Script(optimizer="sgd", mistake=m), tmp_path, "A", Fake()) for m in ("", "gradients_off_at_random"))
    a.perturbed(SEEDS, 6)
    edited = dataclasses.replace(a, rerun=Fake(mistake="off_by_a_little"), repeated=0)
    found = diff(edited, b, 20)
    assert found.verdict.kind == "unnamed" and not found.notes
    assert edited.rerun.runs == ["unchanged-0", *(f"perturbed-{seed}-0" for seed in SEEDS), "unchanged-1"]
    with pytest.raises(NotRepeated):  # which is known by now
        edited.perturbed([50], 2)
    assert len(edited.rerun.runs) == 6


def test_a_run_from_other_weights_is_run_again_from_these(tmp_path: Path) -> None:
    class Seen(Fake):
        def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
            started.append(options.weights_from)
            super().__call__(command, options, directory, is_quiet)

    started: list[str | None] = []
    (folder := tmp_path / "run[1]").mkdir()
    b = dataclasses.replace(side(Script(), tmp_path, "B", Seen()), directory=folder)
    weights = [tmp_path / name for name in ("sgd", "sgd-2")]
    for number, path in enumerate(weights):
        path.write_bytes(b"w" * (number + 1))
    runs = [b.started_from(path, 6) for path in (*weights, *weights)]
    assert runs[0].name == runs[2].name != runs[1].name == runs[3].name
    assert started == [None, *map(str, weights)]
    dataclasses.replace(b, run=runs[0], directory=Path(runs[0].name), weights=str(weights[0])).perturbed([3], 6)
    assert started[3:] == [str(weights[0])]


def test_weights_of_one_rank_are_not_loaded_where_others_hold_other_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, spread = (side(Script(world=2, shards=each), tmp_path, "A", Fake()) for each in (False, True))
    assert plain.run.elsewhere == () and len(spread.run.elsewhere) > 5
    stages = dataclasses.replace(plain.run, elsewhere=("1.weight", "rank1.0.weight"))
    runs = {"plain": plain.run, "spread": spread.run, "stages": stages}
    monkeypatch.setattr(sides, "read_run", lambda path, *_: runs[path.name])
    monkeypatch.setattr(Reruns, "initial_weights", lambda _: tmp_path / "weights.npz")
    monkeypatch.setattr(Reruns, "started_from", lambda own, *_: own.run)
    places = {name: tmp_path / name for name in runs}
    for path in places.values():
        path.mkdir()
    for name, said in (("spread", r"net.unused.weight, net.embed"), ("stages", "1.weight, rank1.0.weight")):
        with pytest.raises(ConfigError, match=rf"those of A hold different parts of their model \({said}"):
            sides.read_sides(places[name], places["plain"], takes_weights=True)
    with pytest.raises(
        ConfigError, match=r"those of B hold different parts of their model \(rank1.0.weight\); set the same"
    ):
        sides.read_sides(places["plain"], places["stages"], takes_weights=True)
    sides.read_sides(places["plain"], places["spread"], takes_weights=True)  # each rank is given its part


def test_few_digits_hide_whether_a_script_was_edited(tmp_path: Path) -> None:
    """A float64 pass of an edited script would call it the same as itself."""
    a, b = (side(Script(products="bfloat16"), tmp_path, name, Fake()) for name in "AB")
    a.is_unsure, a.repeated = True, 6
    with pytest.raises(Unavailable, match="A cannot be run again in float64: its rounding hides whether"):
        in_float64((a, b))
