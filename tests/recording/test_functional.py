"""What is trained may be held by no module, and be given to functions; and what a loss is computed with is seen."""

from pathlib import Path

import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.joining import read_run
from tests.recording.records import Rank, distance, examples, loss, read_many, recorded_once

pytestmark = pytest.mark.torch
LOSSES = ("labels", "hand", "absolute", "shares", "divergence")
KINDS = ("function", "tensors", "example", "call", "stateless", "expanded")
CASES: dict[str, tuple[str, dict[str, object]]] = {
    **{kind: (f"functional.py {kind}", {"stop_after": 3}) for kind in ("module", *KINDS)},
    "wrong-module": ("functional.py module wrong", {"stop_after": 3}),
    "wrong-tensors": ("functional.py tensors wrong", {"stop_after": 3}),
    "moved": ("functional.py call", {"perturb": 1, "stop_after": 3}),
    "layers": ("targets.py", {}),
    "wrong-layers": ("targets.py wrong", {}),
    "rounded": ("targets.py rounded", {}),
    **{f"labels {word}": (f"targets.py labels {word}", {}) for word in ("shorter", "padded")},
    **{name: (f"targets.py {name}", {}) for name in LOSSES},
    **{f"wrong-{name}": (f"targets.py {name} wrong", {}) for name in LOSSES},
    **{
        name: (f"adversary.py {words}", {})
        for name, words in (("gan", "detach"), ("leaky", ""), ("cleared", "clear"), ("gan-cleared", "detach clear"))
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_once(tmp_path_factory, "functional-records", CASES)


@pytest.fixture(scope="module")
def records(folder: Path) -> dict[str, list[Rank]]:
    return read_many(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_functions_take_the_step_of_a_module(records: dict[str, list[Rank]], kind: str) -> None:
    assert distance(records["module"], records[kind]) < 2e-6
    for place in range(1, 4):
        assert loss(records["module"], place) == pytest.approx(loss(records[kind], place), rel=1e-6)
        assert kind == "tensors" or examples(records["module"], place) == examples(records[kind], place)
        assert len(records[kind][0][1][place].targets) == 8


def test_tensors_of_a_function_are_perturbed_before_it_is_called(records: dict[str, list[Rank]]) -> None:
    own, moved = (records[name][0][1][1].stats["gradient"] for name in ("call", "moved"))
    assert (own["bits"] != moved["bits"]).all() and own["square"] == pytest.approx(moved["square"], rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "what", "total"),
    [("module", "targets", 8), ("tensors", "data", 8), *((kind, "targets", 6) for kind in ("layers", *LOSSES))],
)
def test_one_wrong_target_is_named(folder: Path, kind: str, what: str, total: int) -> None:
    verdict = judge(read_run(folder / kind), read_run(folder / f"wrong-{kind}"))
    assert verdict.headline == f"not the same: step 2, data: the {what} of 1 of {total} examples are different in B"
    assert [cause.name for cause in verdict.causes] == ["targets_differ"]


def test_the_last_bits_of_targets_are_no_difference(folder: Path) -> None:
    assert judge(read_run(folder / "layers"), read_run(folder / "rounded")).kind == "same"
    whole, rounded = (read_run(folder / name).steps for name in ("layers", "rounded"))
    assert [step.targeted for step in whole] == [step.targeted for step in rounded]


def test_lengths_of_inputs_and_padding_are_no_labels(folder: Path) -> None:
    """A CTC loss is given them beside its labels."""
    whole, shorter, padded = (read_run(folder / f"labels{word}") for word in ("", " shorter", " padded"))
    assert judge(whole, padded).kind == "same"
    assert [step.targeted for step in whole.steps] == [step.targeted for step in padded.steps]
    verdict = judge(whole, shorter)
    assert [cause.name for cause in verdict.causes] == ["other_loss"] and "step 0, loss" in verdict.headline


def test_a_missing_detach_is_named_where_it_matters(folder: Path, records: dict[str, list[Rank]]) -> None:
    verdict = judge(read_run(folder / "gan"), read_run(folder / "leaky"))
    assert (verdict.first.step, verdict.first.phase, verdict.first.layer) == (1, "gradient", "Maker")
    assert [cause.name for cause in verdict.causes] == ["stray_gradients"]
    assert verdict.headline.endswith(
        "2 of 2 gradients of B are A's plus what the backward pass of an earlier step left there, one that updated other "
        "parameters: a `detach` is missing, or a `zero_grad` before this step's pass"
    )
    assert judge(read_run(folder / "gan-cleared"), read_run(folder / "cleared")).kind == "same"
    strays = [("stray" in step.stats) for step in records["gan"][0][1]]
    assert strays == [False, False, True, False, True, False, True]  # the maker's loss reaches the critic
