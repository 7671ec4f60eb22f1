"""What is said of the user's own data before it is trained on."""

from types import SimpleNamespace

import numpy as np
import pytest

from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.data.user_notes import notes_on
from samestep.common.workload.models.spec import ArraySpec
from samestep.experiments.run import describe
from tests.common.workload.test_user_data import clicks, features, numbers, tokens


@pytest.fixture
def notes(tmp_path):
    """The lines below a run's header for some arrays, less the file's name."""

    def lines(workload, arrays):
        np.savez(tmp_path / "own.npz", **arrays)
        asked = RunConfig("numpy", "oracle", workload, batch_size=4, dtype="float64", data=str(tmp_path / "own.npz"))
        run, launch = parse(asked), launch_of(asked)
        assert f" trains {run.workload.model.name} with own.npz on 1 device" in describe(run, launch)
        said = check_launch(run, launch).splitlines()
        assert all(line.startswith("own.npz: ") for line in said)
        return [line.removeprefix("own.npz: ") for line in said]

    return lines


@pytest.mark.parametrize(
    ("workload", "arrays"),
    [
        ("digits-mlp", features()),
        ("digits-mlp", features() | numbers()),
        ("prose-gpt", tokens()),
        ("prose-gpt", tokens() | {"test_inputs": tokens()["test_inputs"] + 9}),  # a token is not always in the text
        ("flights-ranker", clicks()),
    ],
)
def test_of_data_that_are_as_they_should_be_nothing_is_said(notes, workload, arrays):
    assert notes(workload, arrays) == []


def relabelled(train, test):
    return features() | {"train_targets": np.resize(train, 12), "test_targets": np.resize(test, 4)}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (
            relabelled([1, 2, 3], [1, 3]),
            "labels start at 1, not at 0; give `train_targets - 1`, `test_targets - 1`.",
        ),
        (
            relabelled([0, 1, 2, 4, 5, 6], [0]),
            "labels have gaps: 1 of 7 classes, such as 3, have no example; number them without gaps.",
        ),
        (
            relabelled([0, 500, 70], [0]),
            "labels have gaps: 498 of 501 classes, such as 1, have no example; number them without gaps, or for a "
            "regression store `train_targets.astype(float)`.",
        ),
        (
            relabelled([0, 1], [0, 1, 2, 3]),
            "no training example has label 2, 3, which 50 % of the held-out examples have.",
        ),
        (
            relabelled([1, 2], [0, 1]),
            "no training example has label 0, which 50 % of the held-out examples have.",
        ),
        (
            features() | {"train_inputs": 255 * features()["train_inputs"]},
            "inputs go up to 255, and the initial weights suit about 1; scale them, as in `train_inputs / 255`, "
            "`test_inputs / 255`.",
        ),
        (
            features() | {name: 1000 * array for name, array in numbers().items()},
            "targets go up to 1000, and the initial weights suit about 1; scale them, as in `train_targets / 1000`, "
            "`test_targets / 1000`.",
        ),
        (
            features() | {name: features()[name].astype(float) for name in ("train_targets", "test_targets")},
            "the targets are whole numbers stored as real ones: a regression; for classes, store `train_targets.astype(int)`.",
        ),
    ],
    ids=lambda value: value.partition(";")[0] if isinstance(value, str) else "",
)
def test_what_may_be_a_mistake_is_said_and_trained_on(notes, arrays, said):
    assert notes("digits-mlp", arrays) == [said]


def test_a_ranker_s_missing_label_is_said(notes):
    assert notes("flights-ranker", clicks() | {"train_targets": np.zeros(12, int)}) == [
        "no training example has label 1, which 50 % of the held-out examples have."
    ]


def test_many_labels_are_named_in_part(notes):
    (said,) = notes(
        "digits-mlp", relabelled([0], [1, 2, 3, 4]) | {"test_inputs": np.zeros((8, 6)), "test_targets": np.arange(8)}
    )
    assert said.startswith("no training example has label 1, 2, 3, 4, 5, ..., which 88 % of")


def test_of_real_targets_of_a_user_s_own_loss_no_label_is_said_to_be_missing():
    model = SimpleNamespace(loss="own", targets=lambda: ArraySpec(()))
    split = Split(np.ones((4, 2)), np.linspace(0, 1, 4), np.ones((2, 2)), np.ones(2))
    assert notes_on("own.npz", model, split) == []
