"""Whatever is asked, by whatever file: a run, or one short line that refuses it, at once."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samestep.common.catalog import catalogue
from samestep.common.errors import MOST_CHARACTERS, ConfigError, Unavailable
from samestep.common.flags import flags, spell_flag
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.start import read_start
from samestep.common.runtime.worker.worker import read_run
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.workload.data.dataset import ARRAYS
from samestep.common.workload.initial import init
from samestep.experiments.cli.command_line import parse_run
from tests.processes import descendants

ROOT = str(Path(__file__).parents[2])
MOST_SECONDS = 3 * 0.2
"""Of the processor: another process may keep it from us."""
EACH, MANY = 125, 500
"""Examples of each kind; `make test-slow` draws many."""
FIXED = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
NUMBERS = st.one_of(
    st.integers(-2, 100),
    st.integers(),
    st.sampled_from([0, 1, 2, 48, 96, 10**6, 2**31 - 1, 10**12, 10**30, 10**400]),
    st.floats(),
)
WORDS = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "x" * 5000, "9" * 5000, "x " * 3000, "\n", "null", "../x"])
)


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[Path]:
    """Names of files and directories that are not there yet."""
    return (tmp_path / str(number) for number in itertools.count())


def many(test: Callable[..., None], **drawn: st.SearchStrategy[object]) -> Callable[..., None]:
    """A test of examples, on many of them."""
    return pytest.mark.slow(settings(max_examples=MANY, **FIXED)(given(**drawn)(test.hypothesis.inner_test)))


def refused_or(made: Callable[[], object]) -> int:
    """The exit code of a request: 0 for a run; a refusal must be one short line, and neither may take long."""
    started = time.process_time()
    try:
        code, line = 0, ""
        assert isinstance(made(), Run)
    except (ConfigError, Unavailable) as error:
        code, line = error.exit_code, str(error)
    assert time.process_time() - started < MOST_SECONDS, line
    assert len(line) <= MOST_CHARACTERS
    assert line.isprintable()
    return code


# --- command lines ----------------------------------------------------------------------------------------------------

WORKLOADS = [
    "digits-mlp",
    "synthetic-mlp",
    "synthetic-cnn",
    "synthetic-gpt",
    "synthetic-ranker",
    "synthetic-regression",
]
FIELDS = ["width", "layers", "heads", "context", "vocabulary", "examples", "features", "outputs", "filters", "hidden"]
ROWS = {f"{framework}:{row.name}": row for framework, row in catalogue()}
ASKS_NETWORK = "tpu"
SIZES = st.one_of(st.integers(1, 8), st.integers(1, 8), NUMBERS)
OWN_VALUES = {
    "workload": st.builds(
        lambda name, fields: "+".join([name, *(f"{field}={value}" for field, value in fields)]),
        st.sampled_from(WORKLOADS),
        st.lists(st.tuples(st.sampled_from(FIELDS), SIZES), max_size=2),
    ),
    "mesh": st.builds(
        lambda axes: ",".join(f"{name}={size}" for name, size in axes),
        st.lists(
            st.tuples(st.sampled_from(["data", "shard", "context", "expert", "tensor", "pipe"]), SIZES), max_size=3
        ),
    ),
    "tpu_topology": st.sampled_from(["v5e:2x2", "v5e:999x998", "v4:2x2x1", "v9:1"]),
    "data": st.sampled_from(["/dev/zero", "/dev", "absent.npz", "d" * 5000, __file__]),
    "start_from": st.sampled_from(["/dev", "absent", "d" * 5000, ROOT]),
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    cell = draw(st.sampled_from(list(ROWS)))
    fields = {**flags(RunConfig), **flags(Techniques), **flags(ROWS[cell].options)}
    names = sorted(set(fields) - {"prepare", "out", "framework", "strategy", ASKS_NETWORK})
    words = []
    for name in draw(st.lists(st.sampled_from(names), max_size=4, unique=True)):
        if type(fields[name].default) is bool or name == "parity":
            words.append(spell_flag(name))
            continue
        choices = [*fields[name].metadata["choices"], "choice"]
        usual = OWN_VALUES.get(name, st.sampled_from(choices) if len(choices) > 1 else SIZES)
        value = draw(WORDS if draw(st.integers(0, 9)) == 9 else usual)
        with contextlib.suppress(ValueError):  # Python spells no number of more than 4,300 digits
            words.append(f"{spell_flag(name)}={value}")
    odd = draw(st.integers(0, 14))
    if odd == 14:
        words.append(draw(WORDS))
    elif odd == 13:
        words.append(f"--{draw(st.sampled_from(['reduce', 'ring', 'zero-stage', 'stepz', 'framework', 'strategy']))}=3")
    return words if odd == 12 else [f"{cell}+{draw(WORDS)}" if odd == 11 else cell, *words]


def checked(words: list[str]) -> Run:
    config = parse_run(words, "samestep run")
    run = parse(config)
    check_launch(run, launch_of(config))
    return run


@settings(max_examples=EACH, **FIXED)
@given(words=command_lines())
def test_a_command_line_is_a_run_or_refused(words: list[str]) -> None:
    if "-h" not in words and "--help" not in words:
        refused_or(functools.partial(checked, words))


test_many_command_lines = many(test_a_command_line_is_a_run_or_refused, words=command_lines())


# --- prepared directories ---------------------------------------------------------------------------------------------

PREPARED = RunConfig(strategy="ddp", devices=2, workload="digits-mlp+width=32", batch_size=48, steps=3)
COMPLETE = json.loads(json.dumps(as_config(parse(PREPARED), launch_of(PREPARED)), default=dataclasses.asdict))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=5,
)


@st.composite
def configurations(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(["edited", "edited", "edited", "anything", "bytes"]))
    if kind == "bytes":
        return draw(st.binary(max_size=100))
    if kind == "anything":
        values = draw(VALUES)
    else:
        names, near = st.sampled_from([*COMPLETE, "stepz"]), st.one_of(SIZES, SIZES, VALUES)
        values = {**COMPLETE, **draw(st.dictionaries(names, near, max_size=2))}
        if draw(st.booleans()):
            values["techniques"] = {**COMPLETE["techniques"], "clip_norm": draw(near)}
        if draw(st.booleans()):
            values["options"] = {"bucket_bytes": draw(near)}
        if draw(st.integers(0, 9)) == 0:
            values.pop(draw(st.sampled_from(sorted(values))))
    return json.dumps(values).encode()


@settings(max_examples=EACH, **FIXED)
@given(content=configurations())
def test_a_prepared_directory_is_a_run_or_refused(paths: Iterator[Path], content: bytes) -> None:
    directory = next(paths)
    directory.mkdir()
    (directory / "config.json").write_bytes(content)
    refused_or(lambda: read_run(directory)[0])


test_many_prepared_directories = many(test_a_prepared_directory_is_a_run_or_refused, content=configurations())


# --- archives ---------------------------------------------------------------------------------------------------------

DTYPES_OF_ARRAYS = [
    "<f8",
    "<f4",
    "<f2",
    ">f8",
    "<i8",
    "|i1",
    "|u1",
    "<u8",
    "|b1",
    "<c16",
    "<U3",
    "|S2",
    "|V8",
    "<M8[s]",
]
LENGTHS = st.one_of(st.integers(0, 6), st.sampled_from([-1, 12, 10**6, 10**12, 2**70]))
SHAPES = st.lists(LENGTHS, max_size=4).map(tuple)


def as_archive(members: dict[str, bytes], compression: int) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def as_member(array: object) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


@st.composite
def members(draw: st.DrawFn) -> bytes:
    """An array as it is written, with few elements of any dtype, or one whose header may claim anything."""
    if draw(st.booleans()):
        elements = st.lists(st.integers(0, 255), min_size=0, max_size=64).map(bytes)
        shape, content = draw(SHAPES), draw(elements)
        header = draw(
            st.one_of(
                st.builds(
                    "{{'descr': {!r}, 'fortran_order': {}, 'shape': {}, }}\n".format,
                    st.sampled_from([*DTYPES_OF_ARRAYS, "|O"]),
                    st.booleans(),
                    st.just(shape),
                ),
                st.sampled_from(["(" * 4000, "{}", "__import__('os')", ""]),
            )
        ).encode()
        version = draw(st.sampled_from([1, 2, 3, 9]))
        length = struct.pack("<H" if version == 1 else "<I", len(header))
        return b"\x93NUMPY" + bytes([version, 0]) + length + header + content
    shape = tuple(draw(st.lists(st.integers(0, 12), max_size=3)))
    count = int(np.prod(shape))
    raw = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 256, 16 * count, np.uint8).tobytes()
    kind = np.dtype(draw(st.sampled_from(DTYPES_OF_ARRAYS)))
    return as_member(np.frombuffer(raw, kind, count).reshape(shape))


@st.composite
def archives(draw: st.DrawFn, good: dict[str, bytes]) -> bytes:
    """An archive, some of whose members are others or missing, or some of whose bytes are."""
    changed = draw(st.dictionaries(st.sampled_from([*good, "other", "x/y", "local/0/x"]), members(), max_size=2))
    missing = draw(st.lists(st.sampled_from([*good]), max_size=1)) if draw(st.integers(0, 4)) == 0 else []
    kept = {name: content for name, content in {**good, **changed}.items() if name not in missing}
    content = as_archive(kept, draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))
    if draw(st.booleans()):
        changed_bytes = bytearray(content)
        for at, value in draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)):
            changed_bytes[at - len(content) // 4 if draw(st.booleans()) else at] = value
        content = bytes(changed_bytes[: draw(st.sampled_from([len(content), len(content), len(content) // 2]))])
    return content


FEATURES = {
    "train_inputs": np.linspace(-1, 1, 72).reshape(12, 6),
    "train_targets": np.arange(12) % 3,
    "test_inputs": np.linspace(-1, 1, 24).reshape(4, 6),
    "test_targets": np.arange(4) % 3,
}
DATA = {name: as_member(FEATURES[name]) for name in ARRAYS}
MODELS = ["digits-mlp+width=8", "mnist-cnn", "prose-gpt+layers=1", "flights-ranker"]


@settings(max_examples=EACH, **FIXED)
@given(content=archives(DATA), workload=st.sampled_from(MODELS))
def test_data_are_a_run_or_refused(paths: Iterator[Path], content: bytes, workload: str) -> None:
    path = next(paths)
    path.write_bytes(content)
    refused_or(lambda: checked([f"--data={path}", f"--workload={workload}", "--batch-size=4"]))


test_many_data = many(test_data_are_a_run_or_refused, content=archives(DATA), workload=st.sampled_from(MODELS))


# --- states -----------------------------------------------------------------------------------------------------------

SMALL = RunConfig(
    framework="numpy", strategy="oracle", dtype="float64", workload="digits-mlp+width=2+layers=2", steps=8
)
WEIGHTS = init(parse(SMALL).workload.model, 0)
STATE = {
    "step": as_member(np.int64(3)),
    **{f"params/{name}": as_member(value) for name, value in WEIGHTS.items()},
    **{f"slots/momentum/{name}": as_member(value * 0) for name, value in WEIGHTS.items()},
}


def started(directory: Path) -> Run:
    asked = dataclasses.replace(SMALL, start_from=str(directory))
    run = parse(asked)
    check_launch(run, launch_of(asked))
    state = read_start(run, str(directory))
    assert 0 <= state.step < run.steps
    assert all(
        np.isfinite(array).all() for arrays in (state.params, *state.slots.values()) for array in arrays.values()
    )
    return run


@settings(max_examples=EACH, **FIXED)
@given(content=archives(STATE))
def test_a_state_is_a_run_or_refused(paths: Iterator[Path], content: bytes) -> None:
    directory = next(paths)
    directory.mkdir()
    (directory / "state.npz").write_bytes(content)
    refused_or(functools.partial(started, directory))


test_many_states = many(test_a_state_is_a_run_or_refused, content=archives(STATE))


# --- the command ------------------------------------------------------------------------------------------------------


def ends_as_it_should(here: Path, words: list[str]) -> None:
    """Gives the command: it ends like the request in this process, and overwrites nothing. A valid run is only prepared."""
    if any("\0" in word or word.startswith(("-h", "--h")) for word in words):
        return
    here.mkdir()
    (here / "mine").mkdir()
    (here / "mine" / "config.json").write_text("{}")
    words = [word.encode("utf-8", "replace").decode() for word in words]
    line = [*words, f"--out={'mine' if len(words) % 3 == 0 else 'new'}"]
    with contextlib.chdir(here):
        code = refused_or(functools.partial(checked, line))
    line += ["--prepare"] * (code == 0)
    before = descendants()
    environment = {**os.environ, "PYTHONPATH": ROOT}
    command = [sys.executable, "-m", "samestep", "run", *line]
    ended = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (code, 1 if code else 0), ended.stderr
    assert (here / "mine" / "config.json").read_text() == "{}"
    assert (here / "new" / "config.json").exists() == (code == 0)
    assert descendants() == before


@settings(max_examples=10, **FIXED)
@given(words=command_lines())
def test_the_command_ends_as_it_should(paths: Iterator[Path], words: list[str]) -> None:
    ends_as_it_should(next(paths), words)


@pytest.mark.slow
@settings(max_examples=50, **FIXED)
@given(words=command_lines())
def test_the_command_ends_as_it_should_fifty_times(paths: Iterator[Path], words: list[str]) -> None:
    ends_as_it_should(next(paths), words)
