"""A record that is damaged, cut off or forged: it is read as far as it goes, or refused in one line, never in a traceback."""

import contextlib
import dataclasses
import io
import json
import random
import shutil
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.frames import CHECKSUMS, LENGTHS, frame_of
from samestep.common.steps.joining import read_run
from samestep.common.steps.projections import Piece
from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import (
    SCHEMA,
    RecordedStep,
    RecordedTensor,
    RecordHeader,
    header_frame,
    rank_file,
    step_frame,
)
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.rows import mix
from samestep.experiments.recording.facts import facts_of
from tests.recording.numpy_script import Script, run

PLACES = 300
OTHER = [None, -1, 10**30, 1.5, float("nan"), "x", "", [], {}, True, [[1]], {"a": 1}, "9" * 50]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return read_run(run(Script(steps=3, world=2, shards=True), tmp_path_factory.mktemp("good") / "good"))


@pytest.fixture
def path(good: RecordedRun, tmp_path: Path) -> Path:
    """The file of a rank, in a copy of the record."""
    shutil.copytree(good.name, tmp_path / "copy")
    return tmp_path / "copy" / rank_file(1)


def steps_of(path: Path) -> list[tuple[object, ...]] | None:
    """What a record says of its steps; None if it is refused, in one line."""
    with refusing(path.parent):
        run = read_run(path.parent)
        return [
            (step.number, step.loss, step.rows, step.sums and step.sums["weight"].bits.tolist()) for step in run.steps
        ]
    return None


@contextlib.contextmanager
def refusing(directory: Path) -> Iterator[None]:
    """Lets a refusal pass that is one line, and names the record."""
    try:
        yield
    except ConfigError as error:
        if "\n" in (said := str(error)) or str(directory) not in said:
            pytest.fail(said)


def test_no_flipped_bit_and_no_cut_changes_what_is_read(path: Path) -> None:
    whole, content, draw = steps_of(path), path.read_bytes(), random.Random(0)
    assert len(whole) == 4
    refused = 0
    for place in draw.sample(range(len(content)), PLACES):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :])
        found = steps_of(path)
        assert found is None
        path.write_bytes(content[:place])
        found = steps_of(path)
        assert found is None or found == whole[: len(found)]
        refused += found is None
    assert 0 < refused < PLACES


def _frames(content: bytes) -> tuple[list[object], list[bytes]]:
    texts, arrays, place = [], [], 0
    while place < len(content):
        _, text, array = LENGTHS.unpack_from(content, place)
        place += LENGTHS.size + CHECKSUMS.size
        texts.append(json.loads(content[place : place + text]))
        arrays.append(content[place + text : place + text + array])
        place += text + array
    return texts, arrays


def _places(value: object, above: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*above, key)
        yield from _places(value[key], (*above, key))


def test_no_forged_value_ends_in_a_traceback(good: RecordedRun, path: Path) -> None:
    """Checksums are right here: somebody wrote the frame on purpose, or another version did."""
    content, draw = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(PLACES):
        texts, arrays = _frames(content)
        frame = draw.choice([0, 0, 1, 2])
        *above, last = draw.choice(list(_places(texts[frame])))
        holder = texts[frame]
        for key in above:
            holder = holder[key]
        if isinstance(holder, dict) and draw.random() < 0.2:
            del holder[last]
        else:
            holder[last] = draw.choice(OTHER)
        path.write_bytes(b"".join(frame_of(text, array) for text, array in zip(texts, arrays, strict=True)))
        facts_of(path.parent)
        refused += 1
        with refusing(path.parent):
            judge(good, read_run(path.parent))
            refused -= 1
    assert refused > PLACES / 2


def test_deep_json_is_refused(path: Path) -> None:
    content = path.read_bytes()
    text = b"[" * 100_000
    lengths = LENGTHS.pack(b"step", len(text), 0)
    path.write_bytes(lengths + CHECKSUMS.pack(zlib.crc32(lengths), zlib.crc32(text)) + text + content)
    with pytest.raises(ConfigError, match="is not a record that samestep wrote: it is not JSON"):
        read_run(path.parent)


def test_another_schema_is_named_whatever_else_is_other(path: Path) -> None:
    texts, arrays = _frames(path.read_bytes())
    texts[0] = {"header": {"schema": 99, "new": 1}}
    path.write_bytes(b"".join(frame_of(text, array) for text, array in zip(texts, arrays, strict=True)))
    with pytest.raises(ConfigError, match="has schema 99, this samestep reads"):
        read_run(path.parent)


def test_a_record_of_an_earlier_schema_is_read_as_one_of_today(tmp_path: Path) -> None:
    """Today's frames have a step's number and losses beside its hashes, and those are mixed where they are read."""
    tensors = (RecordedTensor("weight", "float32", Piece.whole((2,))),)
    sums, frames, found = np.arange(3, dtype=np.uint64), list[bytes](), list[RecordedStep]()
    earlier = {"number": 0, "losses": [0.5, 1e-9], "rows": 2, "targets": 1, "scalars": {"lr": 0.1}}
    frames.append(frame_of(earlier | {"is_skipped": True, "counts": {"calls": 2}, "phases": []}, mix(sums).tobytes()))
    step = RecordedStep(0, (0.5, 1e-9), None, {"lr": 0.1}, True, {"calls": 2})
    frames.append(step_frame(step, (sums[:2].tobytes(), sums[2:].tobytes())))
    frames.append(step_frame(dataclasses.replace(step, rows=tuple(mix(sums[:2])), targets=tuple(mix(sums[2:])))))
    for schema, frame in zip((2, SCHEMA, SCHEMA), frames, strict=True):
        head = header_frame(RecordHeader(schema, "torch", (), "/", {}, {}, 0, 1, tensors))
        found += read_rank(io.BytesIO(head + frame), "it")[1]
    assert [vars(each) for each in found] == [vars(found[0])] * 3
    assert found[0].rows == tuple(mix(sums[:2]).tolist()) and found[0].losses == (0.5, 1e-9)


def test_a_file_whose_name_has_other_digits_is_none_of_a_rank(tmp_path: Path) -> None:
    (tmp_path / "rank-\N{SUPERSCRIPT TWO}.steps").touch()
    with pytest.raises(ConfigError, match="is not a record: it holds no rank"):
        read_run(tmp_path)


def test_the_number_of_processes_that_a_header_gives_takes_no_memory(tmp_path: Path) -> None:
    tensors = (RecordedTensor("weight", "float32", Piece.whole((2,))),)
    header = RecordHeader(SCHEMA, "torch", (), "/", {}, {}, 0, 2**20, tensors)
    (tmp_path / rank_file(0)).write_bytes(header_frame(header))
    tracemalloc.start()
    with pytest.raises(ConfigError, match=f"lacks rank 1 of its {2**20} processes"):
        read_run(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20, peak


def test_a_record_without_tensors_has_nothing_in_common_with_another(good: RecordedRun, tmp_path: Path) -> None:
    header = RecordHeader(SCHEMA, "torch", (), "/", {}, {}, 0, 1, ())
    (tmp_path / rank_file(0)).write_bytes(header_frame(header))
    empty = read_run(tmp_path)
    for sides in ((good, empty), (empty, good)):
        with pytest.raises(ConfigError):
            judge(*sides)
