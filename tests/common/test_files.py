"""Files that somebody else wrote, and what they claim to hold."""

import hashlib
import os
import struct
import warnings
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from samestep.common.files.arrays import MOST_INFLATION, read_arrays, save_arrays
from samestep.common.files.reading import (
    MOST_DEPTH,
    Unreadable,
    memory_bytes,
    open_plain,
    read_bytes,
    read_end,
    read_json,
    read_sha256,
    read_text,
    read_toml,
)
from tests.children import become_nobody, in_child

HEADER = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n"


def archive(path: Path, header: str, content: bytes = b"", compression: int = zipfile.ZIP_STORED) -> Path:
    """An archive with the array `there`, and one with a header of its own."""
    with zipfile.ZipFile(path, "w", compression) as file:
        there = BytesIO()
        np.save(there, np.arange(3))
        file.writestr("there.npy", there.getvalue())
        file.writestr("other.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header.encode() + content)
    return path


def patched(path: Path, local: int, central: int, value: int) -> Path:
    """An archive in all of whose entries two bytes are other ones."""
    np.savez(path, there=np.arange(3))
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = content.find(signature) + offset
        content[at : at + 2] = struct.pack("<H", value)
    path.write_bytes(content)
    return path


def why(path: Path) -> str:
    with pytest.raises(Unreadable) as caught:
        read_arrays(path)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "arrays.npz"


def test_arrays_are_read_as_they_were_written(path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3).T, "b/c": np.array(3), "none": np.zeros((0, 4))}
    for save in (np.savez, np.savez_compressed):
        save(path, **arrays)
        found = read_arrays(path)
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
    assert list(read_arrays(path, ("a", "absent"))) == ["a"]
    assert list(read_arrays(path, ("none", "b/"))) == ["b/c", "none"]


def test_arrays_may_have_any_name(path: Path) -> None:
    arrays = {
        "file": np.arange(3.0),
        "allow_pickle": np.ones((2, 1), np.float32),
        "args": np.int64(4),
        "params/x": np.array(5),
    }
    with path.open("wb") as file:
        save_arrays(file, arrays)
    for found in (read_arrays(path), np.load(path)):
        assert [*found] == [*arrays]
        assert all(
            np.array_equal(found[name], each) and found[name].dtype == each.dtype for name, each in arrays.items()
        )


def test_an_array_that_is_not_asked_for_may_hold_anything(path: Path) -> None:
    archive(path, "(" * 4000)
    assert list(read_arrays(path, ("there",))) == ["there"]


@pytest.mark.parametrize(
    ("header", "content", "said"),
    [
        (HEADER % ("<f8", (10**12, 8)), b"", "other claims 64000000000000 bytes and holds 0"),
        (HEADER % ("<f8", (2**70, 8)), b"", "other claims"),
        (HEADER % ("<f8", (2,)), bytes(15), "other claims 16 bytes and holds 15"),
        (HEADER % ("<f8", (2,)), bytes(17), "other claims 16 bytes and holds 17"),
        (HEADER % ("<f8", (-1, -2)), bytes(16), "other has a shape that no array has"),
        (HEADER % ("<f8", (1,) * 1000), bytes(8), "other has a shape that no array has"),
        (HEADER % ("|O", (1,)), bytes(8), "other holds objects"),
        ("(" * 4000, b"", "it is damaged"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }\n", bytes(8), "other holds objects"),
        ("", b"", "it is damaged"),
    ],
)
def test_a_header_is_held_against_the_file(path: Path, header: str, content: bytes, said: str) -> None:
    assert said in why(archive(path, header, content))


def test_what_inflates_beyond_the_limit_is_refused(path: Path) -> None:
    count = 2**26 + 1
    archive(path, HEADER % ("|u1", (count,)), bytes(count), zipfile.ZIP_DEFLATED)
    assert why(path) == f"it inflates to more than {MOST_INFLATION} times its size"


def test_what_no_memory_holds_as_float64_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(path, there=np.zeros(1000, np.uint8))
    monkeypatch.setattr("samestep.common.files.reading.memory_bytes", lambda: 7999)
    assert why(path).startswith("it takes 7.45e-06 GiB")
    monkeypatch.setattr("samestep.common.files.reading.memory_bytes", lambda: 8000)
    assert read_arrays(path)["there"].shape == (1000,)


@pytest.mark.parametrize(("local", "central", "value"), [(6, 8, 1), (8, 10, 99), (8, 10, zipfile.ZIP_LZMA)])
def test_an_encrypted_or_strangely_compressed_archive_is_refused(
    path: Path, local: int, central: int, value: int
) -> None:
    assert "encrypted or compressed in a way" in why(patched(path, local, central, value))


READERS = (read_arrays, read_bytes, read_text, read_end, read_sha256, read_json, read_toml)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_only_plain_files_are_read(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device", "."):
        with pytest.raises(Unreadable, match="not a plain file"):
            read(tmp_path / name)
    with pytest.raises(Unreadable, match="there is no such file"):
        read(tmp_path / "absent")


@pytest.mark.parametrize("read", [read_bytes, read_text, read_json, read_toml])
def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, read: Callable[[Path, int], object]) -> None:
    (tmp_path / "file").write_text("# 3456789\n")
    with pytest.raises(Unreadable, match="it has more than 9 bytes"):
        read(tmp_path / "file", 9)
    os.truncate(tmp_path / "file", 2**40)
    with pytest.raises(Unreadable, match="it has more than 1048576 bytes"):
        read(tmp_path / "file")


def test_a_file_whose_size_is_not_told_is_read_up_to_the_limit(tmp_path: Path) -> None:
    """The kernel's have none; and a file may grow while it is read."""
    assert read_bytes("/proc/self/cmdline")
    with pytest.raises(Unreadable, match="it has more than 3 bytes"):
        read_bytes("/proc/self/cmdline", 3)
    (tmp_path / "memory").symlink_to("/proc/self/mem")
    with pytest.raises(Unreadable, match="Input/output error"):
        read_bytes(tmp_path / "memory")


def test_of_a_log_the_end_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"first\n\xffsecond\n")
    assert read_end(tmp_path / "log", 6) == "\ufffdsecond\n"
    assert read_end(tmp_path / "log", most_bytes=7) == "second\n"


def test_a_digest_is_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(3 * 2**20))
    assert read_sha256(tmp_path / "file") == hashlib.sha256(bytes(3 * 2**20)).hexdigest()


@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_what_is_too_deep_is_told_so(tmp_path: Path, depth: int, opening: str, closing: str) -> None:
    (tmp_path / "file").write_text(opening * depth + "1" + closing * depth)
    with pytest.raises(Unreadable, match=r"deeper than|not JSON \(RecursionError\)"):
        read_json(tmp_path / "file")
    (tmp_path / "file").write_text(
        f"a = {'[' * depth}{']' * depth}\n" if opening == "[" else ".".join("a" * depth) + " = 1"
    )
    with pytest.raises(Unreadable, match=r"deeper than|not TOML"):
        read_toml(tmp_path / "file")


@pytest.mark.parametrize("part", ["a", " a ", '"a"', '"\\""', "'a'", "1"])
@pytest.mark.parametrize("line", ["{} = 1", "[{}]", "[[{}]]", "a = {{ {} = 1 }}"])
def test_a_key_of_many_parts_is_too_deep(tmp_path: Path, part: str, line: str) -> None:
    """As soon as it is read: tomllib takes minutes for it."""
    (tmp_path / "file").write_text(line.format(".".join([part] * 100_000)) + "\n")
    with pytest.raises(Unreadable, match="deeper than"):
        read_toml(tmp_path / "file")


def test_many_numbers_are_no_deep_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(f"a = [{', '.join(['0.5'] * 1000)}]\n")
    assert read_toml(tmp_path / "file") == {"a": [0.5] * 1000}


def test_what_is_as_deep_as_ours_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("[" * MOST_DEPTH + "]" * MOST_DEPTH)
    assert read_json(tmp_path / "file")


def test_two_arrays_of_a_name_are_refused(path: Path) -> None:
    """Which one is meant, nobody knows; zipfile takes the last."""
    for twin in ("there.npy", "there"):
        archive(path, HEADER % ("<f8", (0,)))
        with zipfile.ZipFile(path, "a") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file.writestr(twin, b"")
        assert why(path) == "it has two arrays named there"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent", "there is no such file"),
        ("n" * 5000, "File name too long"),
        ("null\0", "no file can have such a name"),
    ],
)
def test_a_path_that_cannot_be_opened_is_told_why(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said), open_plain(tmp_path / name):
        pass


def test_a_directory_that_may_not_be_entered_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)

    def said() -> str:
        become_nobody()
        with pytest.raises(Unreadable) as caught, open_plain(tmp_path / "closed" / "file"):
            pass
        return str(caught.value)

    assert in_child(said) == "Permission denied"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000, b" " * (2**20 + 1)])
def test_what_is_no_json_is_told_why(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(Unreadable, match=r"it is not JSON|it has more than 1048576 bytes"):
        read_json(tmp_path / "file.json")


def test_this_machine_has_memory() -> None:
    assert 2**28 < memory_bytes() < 2**50
