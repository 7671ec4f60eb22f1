"""Whatever somebody puts where samestep is about to write: nothing outside is changed, and one line names the place."""

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.files.removing import discard
from samestep.common.files.writing import copy_file, create, make_folder, open_directory, reopen, replacing
from samestep.common.files.written import LIST, WrittenEntry, announced, begin, note, opened, present, read, seal
from samestep.common.program import TrainState
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import open_run, reserve_error, write_error, write_json
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.state_file import write_state

SAID = "is not a plain file that samestep wrote, and was left as it is; move it away, or name another directory."
STATE = TrainState(0, {}, {}, {})


def written(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"ours")


WRITES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a log, metrics": ("rank-0.log", lambda path: os.close(create(path))),
    "in place": ("error.json", lambda path: os.close(reopen(path))),
    "a sign of life": ("process-rank-0.json", lambda path: ProcessFile(path.parent, "rank-0", 0).enter("train")),
    "a reserved error": ("error.json", lambda path: reserve_error(path.parent)),
    "JSON": ("result.json", lambda path: write_json(path, {})),
    "a state": ("state.npz", lambda path: write_state(path.parent, STATE)),
    "a copy": ("trace.json", lambda path: copy_file(Path(__file__), path)),
    "a folder": ("model", lambda path: make_folder(path, path.parent)),
}


def hard_link(path: Path, outside: Path) -> None:
    os.link(outside / "file", path)


def unix_socket(path: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "a link to a file": lambda path, outside: path.symlink_to(outside / "file"),
    "a link to a folder": lambda path, outside: path.symlink_to(outside),
    "a dangling link": lambda path, outside: path.symlink_to(outside / "nowhere"),
    "a link to itself": lambda path, outside: path.symlink_to(path.name),
    "a hard link": hard_link,
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a socket": unix_socket,
    "somebody's file": lambda path, outside: path.write_text("theirs"),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("precious")
    return tmp_path / "outside"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    open_directory(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("what", WRITES)
def test_what_is_planted_is_neither_followed_nor_changed(
    directory: Path, outside: Path, what: str, planted: str
) -> None:
    name, write = WRITES[what]
    PLANTED[planted](directory / name, outside)
    before = os.lstat(directory / name)
    in_place = what in ("in place", "a sign of life", "a reserved error") and planted == "somebody's file"
    if in_place:
        write(directory / name)  # a plain file, in a directory that others may write: it leads nowhere
    else:
        with pytest.raises(WorkerFailed) as caught:
            write(directory / name)
        assert str(caught.value) == f"{directory / name} {SAID}"
    assert os.lstat(directory / name).st_ino == before.st_ino
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "precious"
    assert {path.name for path in directory.iterdir()} == {name, LIST}, "nothing half-written is left"


@pytest.mark.parametrize("planted", sorted(set(PLANTED) - {"somebody's file"}))
def test_an_error_that_cannot_be_written_is_printed(
    directory: Path, outside: Path, capsys: pytest.CaptureFixture[str], planted: str
) -> None:
    PLANTED[planted](directory / "error.json", outside)
    write_error(directory, "rank-0", ValueError("no"), first=False)
    assert capsys.readouterr().err == f"could not write error.json: {directory / 'error.json'} {SAID}\n"
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "precious"


@pytest.mark.parametrize("depth", ["model", "model/torch"])
def test_no_folder_on_the_way_is_a_link(directory: Path, outside: Path, depth: str) -> None:
    if "/" in depth:
        make_folder(directory / "model", directory)
    (directory / depth).symlink_to(outside)
    path = directory / depth / "file"
    with pytest.raises(WorkerFailed, match="not a plain file that samestep wrote"), replacing(path, directory):
        pass
    assert (outside / "file").read_text() == "precious"


def test_a_description_is_copied_and_links_in_it_are_not(tmp_path: Path, outside: Path) -> None:
    (described := tmp_path / "described").mkdir()
    (described / "torch").mkdir()
    for name in ("model.json", "torch/model.json"):
        (described / name).write_text("{}")
    run = open_run(tmp_path / "run", RunConfig(described=str(described)))
    assert sorted(str(path.relative_to(run)) for path in (run / "model").rglob("*")) == [
        "model/model.json", "model/torch", "model/torch/model.json",
    ]  # fmt: skip
    discard(run)
    assert not run.exists()


def test_files_are_replaced_by_whoever_wrote_them(directory: Path) -> None:
    for path in (directory / "result.json", directory / "metrics.jsonl"):
        for _ in range(2):
            written(path)
        for _ in range(2):
            os.close(create(path))
    assert {path.name for path in directory.iterdir()} == {"result.json", "metrics.jsonl", LIST}


# --- the list ---------------------------------------------------------------------------------------------------------


def test_a_copy_of_a_directory_is_not_ours(directory: Path, tmp_path: Path) -> None:
    written(directory / "a")
    (tmp_path / "copy").mkdir()
    for path in directory.iterdir():
        (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
    discard(tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"a", LIST}
    directory.rename(tmp_path / "moved")
    discard(tmp_path / "moved")
    assert not (tmp_path / "moved").exists()


def test_a_directory_that_was_there_stays(tmp_path: Path) -> None:
    open_directory(tmp_path)
    written(tmp_path / "a")
    discard(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_be_older_or_newer_than_it_was_but_not_longer(directory: Path) -> None:
    for name in ("a", "b"):
        written(directory / name)
    os.utime(directory / "a", (1e9, 1e9))
    with (directory / "b").open("a") as file:
        file.write("and theirs")
    discard(directory)
    assert [path.name for path in directory.iterdir()] == ["b"]


def test_a_list_that_was_cut_off_before_its_first_line_is_begun_again(tmp_path: Path) -> None:
    """By a kill between the two."""
    (tmp_path / LIST).touch()
    open_directory(tmp_path)
    os.close(create(tmp_path / "mine"))
    with opened(tmp_path) as root:
        assert set(present(root) or {}) == {LIST, "mine"}
    (other := tmp_path / "other").mkdir()
    (other / LIST).write_text("of somebody else\n")
    with pytest.raises(FileExistsError):
        open_directory(other)


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("content", ["", "theirs"])
def test_what_somebody_makes_right_before_us_is_theirs(
    directory: Path, content: str, is_changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, path = os.open, directory / "a"

    def late(name: str, flags: int, *arguments: int, **options: int) -> int:
        if name == "a":
            path.write_text(content)
        return make(name, flags, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", late)
        with pytest.raises(WorkerFailed, match="not a plain file that samestep wrote"):
            create(path)
    discard(directory, is_changed=is_changed)
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", "theirs"])
def test_of_what_was_about_to_be_made_no_more_is_ours_than_what_is_empty(directory: Path, content: str) -> None:
    with opened(directory) as root:
        for name, is_folder in (("a", False), ("b", False), ("model", True)):
            with announced(root, name, is_folder):
                pass
    (directory / "model").mkdir()
    (directory / "model" / "theirs").write_text(content)
    (directory / "a").write_text(content)
    (directory / "c").touch()
    (directory / "b").symlink_to("c")
    discard(directory, is_changed=True)
    assert {path.name for path in directory.iterdir()} == {"b", "c", "model"} | ({"a"} if content else set())
    assert (directory / "model" / "theirs").read_text() == content


def test_what_was_made_stays_ours_when_a_slower_process_was_about_to_make_it(directory: Path) -> None:
    written(directory / "a")
    with opened(directory) as root, pytest.raises(FileExistsError), announced(root, "a"):
        raise FileExistsError
    discard(directory)
    assert not directory.exists()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_file_is_ours_whether_one_was_killed_before_or_after_it_was_replaced(
    directory: Path, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, path = os.replace, directory / "a"

    def last(*names: str, **options: int) -> None:
        if is_late:
            replace(*names, **options)
        os._exit(9)

    written(path)
    if (child := os.fork()) == 0:
        try:
            monkeypatch.setattr(os, "replace", last)
            written(path)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with opened(directory) as root:
        assert "a" in (present(root) or {})
    written(path)
    discard(directory)
    assert not directory.exists()


def test_what_was_open_is_ours_until_it_is_sealed(directory: Path) -> None:
    for name in ("killed.log", "ended.log"):
        os.close(create(directory / name))
    seal(directory, "ended.log")
    for name in ("killed.log", "ended.log"):
        (directory / name).write_text("more")
    discard(directory)
    assert [path.name for path in directory.iterdir()] == ["ended.log"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 5000,
        '{"name": 5, "inode": 1}',
        '{"name": "a", "inode": "1"}',
        '{"name": "\\u0000", "inode": 1}',
        '{"name": "\\ud800", "inode": 1}',
        '{"name": "", "inode": 1}',
        '{"name": "a", "inode": 1, "more": 2}',
        "\x00" * 50,
    ],
)
def test_a_damaged_line_counts_for_nothing(directory: Path, line: str) -> None:
    with (directory / LIST).open("a") as file:
        file.write(line + "\n")
    written(directory / "a")
    discard(directory)
    assert not directory.exists()


@pytest.mark.parametrize("name", ["../outside/file", "{outside}/file", "model/../../outside/file", "link/file"])
def test_a_list_names_nothing_outside(directory: Path, outside: Path, name: str) -> None:
    (directory / "link").symlink_to(outside)
    inode = os.lstat(outside / "file").st_ino
    with opened(directory) as root:
        note(root, WrittenEntry(name.format(outside=outside), inode))
    discard(directory)
    assert (outside / "file").read_text() == "precious"


@pytest.mark.parametrize("content", [b"mine", b"{}\n", b"\xff", b'{"name": "written.jsonl", "inode": 1}\n'])
def test_a_list_that_somebody_else_wrote_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LIST).write_bytes(content)
    with opened(tmp_path) as root:
        assert read(root) is present(root) is None
        with pytest.raises(FileExistsError):
            begin(root)
    discard(tmp_path)
    assert (tmp_path / LIST).read_bytes() == content


def test_a_list_under_two_names_is_none(directory: Path, tmp_path: Path) -> None:
    os.link(directory / LIST, tmp_path / "other")
    with opened(directory) as root:
        assert read(root) is None


def test_many_processes_write_one_list(directory: Path) -> None:
    writers = [threading.Thread(target=written, args=(directory / str(number),)) for number in range(20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    names = [json.loads(line)["name"] for line in (directory / LIST).read_text().splitlines()]
    assert {str(number) for number in range(20)} <= {*names}
    discard(directory)
    assert not directory.exists()
