"""`--data file.npz`: what is taken, and the one line that refuses the rest."""

import dataclasses
import itertools
import struct
import zipfile

import numpy as np
import pytest

from samestep.common.batch import batches
from samestep.common.errors import ConfigError
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.common.workload.table import resolve, title

NEEDED = "train_inputs, train_targets, test_inputs, test_targets"


def real(*shape):
    return np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)


def whole(below, *shape):
    return np.arange(np.prod(shape)).reshape(shape) % below


def features():
    return {
        "train_inputs": real(12, 6),
        "train_targets": whole(3, 12),
        "test_inputs": real(4, 6),
        "test_targets": whole(3, 4),
    }


def numbers():
    return {"train_targets": real(12, 2), "test_targets": real(4, 2)}


def tokens():
    return {
        "train_inputs": whole(7, 12, 5),
        "train_targets": whole(7, 12, 5),
        "test_inputs": whole(7, 4, 5),
        "test_targets": whole(7, 4, 5),
    }


def clicks():
    return tokens() | {"train_targets": whole(2, 12), "test_targets": whole(2, 4)}


@pytest.fixture
def trained_on(tmp_path):
    """Writes arrays to a new file, and returns the workload that trains on them."""
    numbers = itertools.count()

    def write(workload, arrays):
        path = tmp_path / str(next(numbers)) / "own.npz"
        path.parent.mkdir()
        np.savez(path, **arrays)
        return resolve(workload, str(path))

    return write


@pytest.fixture
def refusal(trained_on, tmp_path):
    """The one line that refuses arrays, less the file's name, with which it opens."""

    def line(workload, arrays):
        with pytest.raises(ConfigError) as caught:
            trained_on(workload, arrays)
        assert "\n" not in str(caught.value)
        opening, _, rest = str(caught.value).partition("own.npz")
        assert opening.startswith(f"--data {tmp_path}")
        return rest

    return line


FITTING = {
    "mlp": ("digits-mlp", features(), MlpSpec(features=6, outputs=3)),
    "mlp of images": (
        "digits-mlp+width=8",
        features() | {"train_inputs": real(12, 2, 3), "test_inputs": real(4, 2, 3)},
        MlpSpec(features=6, width=8, outputs=3),
    ),
    "cnn": (
        "mnist-cnn",
        features() | {"train_inputs": real(12, 8, 4, 3), "test_inputs": real(4, 8, 4, 3)},
        CnnSpec(image=(8, 4, 3), outputs=3),
    ),
    "cnn of grey images": (
        "mnist-cnn",
        features() | {"train_inputs": real(12, 8, 4), "test_inputs": real(4, 8, 4)},
        CnnSpec(image=(8, 4, 1), outputs=3),
    ),
    "mlp of one real target": (
        "digits-mlp",
        features() | {"train_targets": real(12), "test_targets": real(4)},
        MlpSpec(features=6, outputs=1, loss="mean_squared_error"),
    ),
    "mlp of real targets": (
        "digits-mlp",
        features() | numbers(),
        MlpSpec(features=6, outputs=2, loss="mean_squared_error"),
    ),
    "cnn of real targets": (
        "mnist-cnn",
        features() | {"train_inputs": real(12, 8, 4), "test_inputs": real(4, 8, 4)} | numbers(),
        CnnSpec(image=(8, 4, 1), outputs=2, loss="mean_squared_error"),
    ),
    "transformer": ("prose-gpt+layers=1", tokens(), TransformerSpec(layers=1, context=5, vocabulary=7)),
    "transformer of further tokens": (
        "prose-gpt+layers=1+vocabulary=256",
        tokens(),
        TransformerSpec(layers=1, context=5, vocabulary=256),
    ),
    "ranker": ("flights-ranker", clicks(), RankerSpec(cardinalities=(7,) * 5, hash_buckets=0)),
}


@pytest.mark.parametrize("case", FITTING)
def test_the_model_takes_its_sizes_from_the_arrays(trained_on, case):
    workload, arrays, model = FITTING[case]
    found = trained_on(workload, arrays)
    assert found.model == model
    split = found.data.load()
    for name, array in arrays.items():
        expected = array.astype(np.float32) if array.dtype.kind == "f" else array
        np.testing.assert_array_equal(getattr(split, name).ravel(), expected.ravel())


@pytest.mark.parametrize("case", FITTING)
def test_the_model_trains_on_what_it_was_fitted_to(trained_on, case):
    workload, arrays, _ = FITTING[case]
    found = trained_on(workload, arrays)
    split = found.data.load()
    oracle = parse(
        RunConfig(
            framework="numpy", strategy="oracle", dtype="float64", data=found.data.path, workload=workload, batch_size=4
        )
    )
    program = TrainingProgram(oracle)
    program.step(next(batches(split.train_inputs, split.train_targets, 4, seed=0)))
    assert np.isfinite(program.losses()).all()
    assert len(program.predict(split.test_inputs)) == 4


def test_a_class_that_is_only_held_out_counts_too(trained_on):
    assert trained_on("digits-mlp", features() | {"test_targets": np.array([0, 1, 2, 8])}).model.outputs == 9


@pytest.mark.parametrize("name", ["train_inputs", "test_inputs", "test_targets"])
def test_a_token_counts_wherever_it_stands(trained_on, name):
    arrays = tokens()
    arrays[name] = whole(11, *arrays[name].shape)
    assert trained_on("prose-gpt", arrays).model.vocabulary == 11


def test_an_id_that_is_only_held_out_counts_too(trained_on):
    assert trained_on("flights-ranker", clicks() | {"test_inputs": whole(20, 4, 5)}).model.cardinalities == (
        16,
        17,
        18,
        19,
        20,
    )


def test_real_numbers_are_rounded_once_to_float32_and_whole_ones_become_int64(trained_on):
    split = trained_on("digits-mlp", features() | {"train_targets": whole(3, 12).astype(np.uint8)}).data.load()
    assert split.train_inputs.dtype == np.float64
    assert split.train_targets.dtype == np.int64
    np.testing.assert_array_equal(split.train_inputs, real(12, 6).astype(np.float32))


def test_two_files_are_two_workloads_and_one_file_under_two_names_is_one(tmp_path):
    digests = []
    for name, shift in (("a", 0.0), ("b", 0.0), ("c", 0.5)):
        arrays = features()
        np.savez(tmp_path / f"{name}.npz", **arrays | {"train_inputs": arrays["train_inputs"] + shift})
        digests.append(resolve("digits-mlp", str(tmp_path / f"{name}.npz")).digest)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("name", ["missing.npz", ""])
def test_a_file_that_is_not_there_is_named_with_what_it_needs(tmp_path, name):
    path = str(tmp_path / name) if name else ""
    with pytest.raises(ConfigError) as caught:
        resolve("digits-mlp", path)
    assert str(caught.value) == (
        f"--data {path} cannot be read: there is no such file; give a .npz file with the arrays {NEEDED}."
    )


@pytest.mark.parametrize("content", [b"hello", b"", bytes(64)])
def test_a_file_of_another_kind_is_named_with_what_it_needs(tmp_path, content):
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        resolve("digits-mlp", str(path))
    assert f"--data {path} cannot be read" in str(caught.value)
    assert NEEDED in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arrays_that_are_missing_are_listed(refusal):
    arrays = {name: array for name, array in features().items() if name.startswith("train")}
    assert "lacks test_inputs, test_targets" in refusal("digits-mlp", arrays)
    other_names = {name.replace("_", "-"): array for name, array in features().items()}
    assert "has none of the arrays train_inputs, train_targets, test_inputs, test_targets; save" in refusal(
        "digits-mlp", other_names
    )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"train_targets": whole(3, 11)}, "train_inputs [12, 6] and train_targets [11] do not hold the same"),
        ({"test_targets": np.array(1)}, "test_inputs [4, 6] and test_targets [] do not hold the same"),
        ({"test_inputs": real(0, 6), "test_targets": whole(3, 0)}, "positive number of examples"),
        ({"train_targets": real(12)}, "takes real numbers [examples, 1], not int64 [4] as test_targets"),
        ({"test_targets": real(4)}, "takes whole numbers [examples], not float64"),
        ({"test_targets": np.ones(4)}, "give `test_targets.ravel().astype(int)`."),
        (
            {"train_targets": real(12, 2), "test_targets": real(4, 3)},
            "takes real numbers [examples, 2], not float64 [4, 3]",
        ),
        ({"train_targets": real(12, 2, 3), "test_targets": real(4, 2, 3)}, "[examples, 6], not float64 [12, 2, 3]"),
        ({"train_targets": whole(3, 12)[:, None]}, "not int64 [12, 1] as train_targets; give `train_targets[:, 0]`."),
        (
            {"train_targets": np.eye(3)[whole(3, 12)]},
            "[12, 3] is one-hot; give the classes: `train_targets.argmax(axis=1)`.",
        ),
        ({"test_targets": np.eye(3, dtype=int)[whole(3, 4)]}, "give the classes: `test_targets.argmax(axis=1)`."),
        ({"train_inputs": real(12), "test_inputs": real(4)}, "the mlp takes real numbers [examples, features]"),
        ({"train_targets": -whole(3, 12)}, "train_targets holds -2; whole numbers must be at least 0"),
        ({"train_inputs": np.where(real(12, 6) > 0, np.nan, 0)}, "train_inputs holds numbers that are not finite"),
        ({"test_inputs": np.where(real(4, 6) > 0, np.inf, 0)}, "test_inputs holds numbers that are not finite"),
        ({"train_inputs": np.full((12, 6), "a")}, "train_inputs is <U1; give real or whole numbers"),
        ({"train_inputs": np.full((12, 6), None)}, "cannot be read"),
        ({"train_targets": whole(3, 12, 2), "test_targets": whole(3, 4, 2)}, "[12, 2]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_arrays_that_no_model_can_take_are_refused_by_name(refusal, changed, named):
    assert named in refusal("digits-mlp", features() | changed)


@pytest.mark.parametrize(
    ("workload", "arrays", "named"),
    [
        ("prose-gpt", features(), "the transformer takes whole numbers [examples, 6], not float64 [12, 6]"),
        (
            "prose-gpt",
            tokens() | {"train_inputs": whole(7, 12, 5) - 1},
            "train_inputs holds -1; whole numbers must be at least 0",
        ),
        ("prose-gpt", clicks(), "the transformer takes whole numbers [examples, 5], not int64 [12]"),
        ("prose-gpt", tokens() | {"train_targets": real(12, 5)}, "must be whole numbers from 0 up, not float64"),
        ("flights-ranker", clicks() | {"train_targets": real(12)}, "for a regression choose an mlp or cnn workload"),
    ],
)
def test_arrays_for_another_model_are_refused_by_what_this_one_takes(refusal, workload, arrays, named):
    assert named in refusal(workload, arrays)


@pytest.mark.parametrize(
    ("workload", "arrays", "named"),
    [
        ("mnist-cnn", features(), "images [height, width, channels]"),
        ("flights-ranker", features(), "whole-number ids"),
        ("prose-gpt", features() | {"train_inputs": real(12, 2, 3), "test_inputs": real(4, 2, 3)}, "[2, 3]"),
    ],
)
def test_shapes_for_another_model_are_refused_by_what_this_one_takes(refusal, workload, arrays, named):
    assert named in refusal(workload, arrays)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (4, 8, 8)])
def test_images_with_channels_first_are_refused_with_the_line_that_transposes_them(refusal, trained_on, shape):
    images = {"train_inputs": real(12, *shape), "test_inputs": real(4, *shape)}
    said = refusal("mnist-cnn", features() | images)
    assert f"{list(shape)} looks like [channels, height, width]" in said
    assert "pad" not in said
    mended = {name: _by(said, name, array) for name, array in images.items()}
    assert trained_on("mnist-cnn", features() | mended).model.image == (*shape[1:], shape[0])


def _by(said, name, array):
    """The array that the line in a message makes of it."""
    (line,) = (part for part in said.split("`")[1::2] if part.startswith(name))
    return eval(line, {name: array})


def test_images_of_few_pixels_are_not_taken_for_channels_first(trained_on):
    images = {"train_inputs": real(12, 4, 4, 3), "test_inputs": real(4, 4, 4, 3)}
    assert trained_on("mnist-cnn", features() | images).model.image == (4, 4, 3)


@pytest.mark.parametrize(
    ("dtype", "top", "scale"),
    [(np.uint8, 255, 255), (np.uint8, 100, 255), (np.int32, 1000, 1000), (np.int8, -128, 128)],
)
@pytest.mark.parametrize(("workload", "shape"), [("mnist-cnn", (8, 8, 3)), ("digits-mlp", (8, 8))])
def test_large_whole_numbers_are_refused_with_the_line_that_scales_them(
    refusal, trained_on, workload, shape, dtype, top, scale
):
    raw = {name: np.zeros((count, *shape), dtype) for name, count in (("train_inputs", 12), ("test_inputs", 4))}
    for array in raw.values():
        array.flat[0] = top
    said = refusal(workload, features() | raw)
    line = said.split("`")[1]
    assert line == f"train_inputs, test_inputs = train_inputs / {scale}, test_inputs / {scale}"
    exec(line, {}, raw)
    trained_on(workload, features() | raw)


@pytest.mark.parametrize(
    ("workload", "arrays"),
    [
        pytest.param("digits-mlp", features() | {"test_inputs": real(4, 5)}, id="held-out inputs of another shape"),
        pytest.param(
            "digits-mlp",
            features() | {"train_inputs": real(12, 0), "test_inputs": real(4, 0)},
            id="examples of no numbers",
        ),
        pytest.param(
            "mnist-cnn",
            features() | {"train_inputs": real(12, 0, 0), "test_inputs": real(4, 0, 0)},
            id="images of no pixels",
        ),
        pytest.param("digits-mlp", features() | {"train_targets": whole(3, 12, 0)}, id="targets of no numbers"),
        pytest.param("digits-mlp", features() | {"train_inputs": np.full((12, 6), 1e300)}, id="numbers beyond float32"),
        pytest.param("digits-mlp", features() | {"train_inputs": np.full((12, 6), 1j)}, id="complex numbers"),
        pytest.param("digits-mlp", features() | {"train_inputs": np.full((12, 6), "2020-01-01", "M8[D]")}, id="dates"),
        pytest.param("prose-gpt", tokens() | {"train_targets": whole(7, 12, 4)}, id="targets shorter than the context"),
        pytest.param(
            "prose-gpt", tokens() | {"test_targets": whole(7, 4, 4)}, id="held-out targets shorter than the context"
        ),
        pytest.param("prose-gpt", tokens() | {"test_targets": whole(7, 4)}, id="held-out targets without a context"),
        pytest.param("prose-gpt", tokens() | {"test_inputs": real(4, 5)}, id="held-out inputs of another kind"),
        pytest.param("flights-ranker", clicks() | {"train_targets": whole(3, 12)}, id="a ranker's targets beyond 1"),
    ],
)
def test_arrays_that_would_fail_later_are_refused_at_once(refusal, workload, arrays):
    refusal(workload, arrays)


def test_a_npy_file_is_named_with_what_it_needs(tmp_path):
    path = tmp_path / "own.npy"
    np.save(path, real(3))
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve("digits-mlp", str(path))


def test_a_damaged_compressed_file_is_named_with_what_it_needs(tmp_path):
    path = tmp_path / "own.npz"
    np.savez_compressed(path, **features())
    content = bytearray(path.read_bytes())
    start = 30 + sum(struct.unpack("<HH", content[26:30]))  # behind the first member's name and extra field
    content[start] = 0xFF  # no kind of deflated block begins so
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve("digits-mlp", str(path))


def test_a_file_cut_short_is_named_with_what_it_needs_and_closed(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, **features())
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        resolve("digits-mlp", str(path))
    del caught  # an open file would be found, and be an error, here


def test_images_of_whole_numbers_are_taken_as_real_ones(trained_on):
    images = {
        "train_inputs": whole(17, 12, 8, 8, 3).astype(np.uint8),
        "test_inputs": whole(17, 4, 8, 8, 3).astype(np.uint8),
    }
    assert trained_on("mnist-cnn", features() | images).model == CnnSpec(image=(8, 8, 3), outputs=3)


def misfit(name, reason, arrays):
    return pytest.param(name, arrays, id=reason)


@pytest.mark.parametrize(
    ("workload", "arrays"),
    [
        misfit(
            "mnist-cnn",
            "held-out images on their side",
            features() | {"train_inputs": real(12, 8, 4, 1), "test_inputs": real(4, 4, 8, 1)},
        ),
        misfit("digits-mlp", "targets beyond int64", features() | {"train_targets": np.full(12, 2**63, np.uint64)}),
        misfit(
            "digits-mlp", "more classes than any memory holds", features() | {"train_targets": whole(3, 12) + 10**13}
        ),
    ],
)
def test_arrays_that_would_be_misread_are_refused(refusal, workload, arrays):
    refusal(workload, arrays)


def test_a_zip_of_other_files_is_named_with_what_it_needs(tmp_path):
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in features():
            archive.writestr(name, "hello")
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve("digits-mlp", str(path))


@pytest.mark.parametrize(
    ("workload", "arrays", "metric"),
    [
        ("digits-mlp", features(), "accuracy"),
        ("digits-mlp", features() | numbers(), "root_mean_squared_error"),
        ("synthetic-regression", features(), "accuracy"),
        ("prose-gpt", tokens(), "bits_per_token"),
        ("flights-ranker", clicks(), "auc"),
    ],
)
def test_the_metric_fits_the_arrays(trained_on, workload, arrays, metric):
    assert trained_on(workload, arrays).metric == metric


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_regression_learns_at_its_default_rates(trained_on, optimizer):
    """At the rate for digits, sgd diverges on this within twenty steps."""
    stream = np.random.default_rng(0)
    inputs, slopes = stream.normal(size=(120, 6)), stream.normal(size=6)
    arrays = {"train_inputs": inputs[:96], "test_inputs": inputs[96:]}
    arrays |= {"train_targets": arrays["train_inputs"] @ slopes, "test_targets": arrays["test_inputs"] @ slopes}
    found = trained_on("digits-mlp", arrays)
    assert next(iter(found.learning_rates)) == "adamw"
    asked = RunConfig("numpy", "oracle", "digits-mlp", dtype="float64", data=found.data.path, optimizer=optimizer)
    program, split = TrainingProgram(parse(dataclasses.replace(asked, batch_size=48))), found.data.load()
    for batch in itertools.islice(batches(split.train_inputs, split.train_targets, 48, seed=0), 60):
        program.step(batch)
    losses = program.losses()
    assert losses[-1] < 0.05 * losses[0]


def test_a_vocabulary_smaller_than_the_data_s_is_refused(trained_on):
    with pytest.raises(ConfigError) as caught:
        trained_on("prose-gpt+vocabulary=6", tokens())
    assert str(caught.value) == "'vocabulary=6' does not fit the data, which need 7; give 7 or more."


def test_a_file_that_is_written_again_is_read_again(tmp_path):
    for width in (6, 7):
        arrays = {"train_inputs": real(12, width), "test_inputs": real(4, width)}
        np.savez(tmp_path / "own.npz", **features() | arrays)
        assert resolve("digits-mlp", str(tmp_path / "own.npz")).model.features == width


def test_what_is_trained_is_called_by_its_model_and_the_file():
    assert title("digits-mlp+width=8", "some/own.npz") == "mlp+width=8 with own.npz"
    assert title("digits-mlp+width=8", None) == "digits-mlp+width=8"
