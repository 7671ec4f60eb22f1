"""Arrays for a user's own model: in the shapes and kinds that they have, and several of them as inputs."""

from pathlib import Path

import numpy as np
import pytest

from samestep.common.batch import WHOLE, batches
from samestep.common.errors import ConfigError
from samestep.common.judging.metrics import METRICS
from samestep.common.workload.data.as_given import read_as_given
from samestep.common.workload.data.casting import in_dtype
from samestep.common.workload.data.several import each
from samestep.common.workload.declaration import METRICS as SUITING
from samestep.common.workload.declaration import NAMED_METRICS


def arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    made = {}
    for part, count in (("train", 9), ("test", 4)):
        made[f"{part}_inputs.ids"] = draw.integers(0, 9, (count, 3))
        made[f"{part}_inputs.mask"] = draw.normal(size=(count, 3, 1))
        made[f"{part}_targets"] = draw.normal(size=count)
    return made


@pytest.fixture
def read(tmp_path: Path):
    def saved(made: dict[str, np.ndarray]):
        np.savez(tmp_path / "a.npz", **made)
        return read_as_given(str(tmp_path / "a.npz"))

    return saved


def test_a_batch_gathers_rows_of_each_array(read) -> None:
    made = arrays()
    split = in_dtype(read(made), "float32")
    batch = next(batches(split.train_inputs, split.train_targets, 6, seed=0))
    inputs, targets = batch.rows(WHOLE.split(1, 2))
    taken = each(inputs, lambda array: array)
    chosen = batch.indices[3:]
    assert taken["ids"].dtype == np.int64 and (taken["ids"] == made["train_inputs.ids"][chosen]).all()
    assert taken["mask"].dtype == np.float32 and taken["mask"].shape == (3, 3, 1)
    assert (taken["mask"] == made["train_inputs.mask"][chosen].astype(np.float32)).all()
    assert (targets == made["train_targets"][chosen].astype(np.float32)).all()


def test_the_digest_tells_names_and_values(read) -> None:
    made = arrays()
    digests = {read(made).sha256}
    made["train_inputs.ids"] = made["train_inputs.ids"] + 1
    digests.add(read(made).sha256)
    for part in ("train", "test"):
        made[f"{part}_inputs.tokens"] = made.pop(f"{part}_inputs.ids")
    digests.add(read(made).sha256)
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_inputs.ids": np.zeros((8, 3), int)}, "train_inputs: the arrays ids, mask hold different numbers"),
        ({"test_inputs.ids": np.zeros((4, 2), int)}, r"an example of train_inputs is ids int64 \[3\], mask"),
        ({"test_inputs.more": np.zeros((4, 2))}, "and one of test_inputs is ids int64"),
        ({"test_targets": np.zeros(5)}, r"test_inputs \[4\] and test_targets \[5\] do not hold the same"),
        ({"train_inputs.ids": np.array(list("abcdefghi"))}, "train_inputs.ids is <U1; give real or whole numbers"),
    ],
)
def test_arrays_that_do_not_fit_each_other(read, change: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(arrays() | change)


def test_what_is_missing_is_named(read) -> None:
    with pytest.raises(ConfigError, match="lacks train_inputs, test_inputs; give a"):
        read({name: array for name, array in arrays().items() if name.endswith("targets")})


def test_the_metrics_that_a_model_may_name_are_there() -> None:
    assert set(NAMED_METRICS) <= set(METRICS) and set(SUITING.values()) <= set(METRICS)
