"""A rerun of a script leaves its files as they were, whatever wrote them."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.put_back import keeping
from samestep.experiments.recording.rerun_folder import outermost
from samestep.experiments.recording.start import record_command


def rerun(program: str, place: Path, words: tuple[str, ...] = ()) -> list[str]:
    """Runs a program as a rerun is run; returns what the user is told of its files."""
    (place / "script.py").write_text(program)
    (reruns := place / "record" / "reruns").mkdir(parents=True, exist_ok=True)
    said: list[str] = []
    with keeping(reruns, place, said.append) as kept:
        command = [*words, sys.executable, "script.py"]
        ended = record_command(command, RecordOptions(str(reruns / "out"), keep=str(kept)), subprocess.DEVNULL, place)
    assert "loaded the recorder" not in ended.why_nothing and not ended.notes and not ended.exit_code, ended
    assert [*reruns.iterdir()] == []
    (place / "script.py").unlink()
    return said


def rerun_nothing(reruns: Path) -> list[str]:
    said: list[str] = []
    with keeping(reruns, reruns, said.append):
        return said


def contents(place: Path) -> dict[str, str]:
    """What each path holds below a folder, or points to."""
    return {
        str(path.relative_to(place)): f"-> {os.readlink(path)}"
        if path.is_symlink()
        else path.is_dir() * "/" or path.read_text()
        for path in sorted(place.rglob("*"))
        if not path.is_relative_to(place / "record")
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with what a long run left."""
    (tmp_path / "out" / "empty").mkdir(parents=True)
    for name in ("best.pt", "log.txt", "out/1.pt", "out/2.pt"):
        (tmp_path / name).write_text(f"{name} of the user")
    (tmp_path / "latest").symlink_to("out/2.pt")
    return tmp_path


CHANGES: dict[str, str] = {
    "opened": "open('best.pt', 'w').write('other')",
    "opened by its descriptor": "os.write(os.open('best.pt', os.O_WRONLY), b'other')",
    "opened to add to it": "open('log.txt', 'a').write('other')",
    "opened to change a part": "open('best.pt', 'r+').write('other')",
    "written by its path": "pathlib.Path('best.pt').write_text('other')",
    "written after a change of folder": "os.chdir('out'); open('../best.pt', 'w').write('other')",
    "written through a link": "open('latest', 'w').write('other')",
    "truncated": "os.truncate('best.pt', 3)",
    "removed": "os.remove('best.pt')",
    "removed with its folder": "shutil.rmtree('out')",
    "written anew in an emptied folder": "shutil.rmtree('out'); os.mkdir('out'); open('out/1.pt', 'w').write('other')",
    "replaced": "open('new.tmp', 'w').write('other'); os.replace('new.tmp', 'best.pt')",
    "rotated": "os.rename('out/1.pt', 'out/0.pt'); os.remove('out/0.pt')",
    "a folder that is renamed": "os.rename('out', 'old'); shutil.rmtree('old')",
    "a link that points elsewhere": "os.symlink('out/1.pt', 'tmp'); os.replace('tmp', 'latest')",
    "a link that is removed": "os.remove('latest')",
    "a file in the place of a link": "os.remove('latest'); open('latest', 'w').write('other'); os.remove('latest')",
    "in another process": "subprocess.run([sys.executable, '-c', \"open('best.pt', 'w').write('other')\"], check=True)",
    "in a forked process": "os.fork() or (open('best.pt', 'w').write('other'), os._exit(0)); os.wait()",
    "in threads": "[threading.Thread(target=lambda: open('best.pt', 'w').write('other')).start() for _ in range(8)]",
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_rerun_changes_is_put_back(place: Path, change: str) -> None:
    before = contents(place)
    said = rerun(f"import os, pathlib, shutil, subprocess, sys, threading\n{change}", place)
    assert contents(place) == before
    assert len(said) == 1 and said[0].startswith("has its files back as they were before the rerun: "), said


def test_an_empty_folder_is_made_again(place: Path) -> None:
    (place / "out" / "empty").chmod(0o700)
    assert rerun("import os; os.rmdir('out/empty')", place) == []
    assert (place / "out" / "empty").stat().st_mode & 0o777 == 0o700


TORCH = """
import torch.package
with torch.package.PackageExporter("best.pt") as exporter:
    exporter.save_text("a", "b", "c")
import torch.distributed.checkpoint as dcp
scripted = torch.jit.script(torch.nn.Linear(2, 2))
torch.save(torch.zeros(2), "log.txt")
torch.jit.save(scripted, "out/1.pt")
scripted.save("out/2.pt")
dcp.save({"w": torch.zeros(2)}, checkpoint_id="out")
"""
WRITERS = {
    "torch": TORCH,
    "HDF5": "import h5py; h5py.File('best.pt', 'w').create_dataset('w', data=[1.0])",
    "SQLite": "import sqlite3; c = sqlite3.connect('trials.db'); c.execute('delete from t'); c.commit()",
    "NumPy": "import numpy as np; np.save(open('best.pt', 'wb'), np.zeros(2)); np.zeros(2).tofile('log.txt')",
}
SAFETENSORS = "import numpy as np; from safetensors.numpy import save_file; save_file({'w': np.zeros(2)}, 'best.pt')"
KERAS = """
import keras, tensorflow as tf
model = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
checkpoint = tf.train.Checkpoint(w=tf.Variable(keras.random.uniform([2])))
model.save("out/model.keras")
model.save_weights("out/model.weights.h5")
checkpoint.write("out/one")
tf.train.CheckpointManager(checkpoint, "out/kept", max_to_keep=1).save()
model.export("out/exported")
"""
GFILE = """
tf.io.gfile.GFile("best.pt", "w").write("other")
tf.io.gfile.rename("log.txt", "out/1.pt", overwrite=True)
tf.io.gfile.copy("best.pt", "out/2.pt", overwrite=True)
tf.io.gfile.rmtree("out/away")
tf.io.gfile.makedirs("made/within")
tf.io.write_file("out/second", "other")
tf.function(lambda: [tf.io.write_file("out/fourth", "other")] and None)()
tf.io.write_file(tf.constant("written/new"), "other")
tf.io.TFRecordWriter("out/third").write(b"other")
tf.train.CheckpointManager(checkpoint, "made/kept", max_to_keep=1).save()
for folder in ("out", "made/events"):
    with tf.summary.create_file_writer(folder).as_default():
        tf.summary.scalar("loss", 0.5, step=0)
"""


@pytest.mark.parametrize("writes", WRITERS.values(), ids=WRITERS)
def test_what_compiled_code_writes_is_put_back(place: Path, writes: str) -> None:
    with sqlite3.connect(place / "trials.db") as connection:
        connection.execute("create table t (loss)")
        connection.execute("insert into t values (0.5)")
    (place / "out" / ".metadata").write_text("of the user")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    said = rerun(writes, place)
    assert {path: path.read_bytes() for path in before} == before
    assert said[0].startswith("has its files back"), said


def test_what_safetensors_writes_is_put_back(place: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    before = contents(place)
    rerun(SAFETENSORS, place)
    assert contents(place) == before


@pytest.mark.slow
def test_what_tensorflow_writes_is_put_back(place: Path) -> None:
    (place / "out" / "away" / "inner").mkdir(parents=True)
    (place / "out" / "away" / "inner" / "file").write_text("of the user")
    for name in ("second", "third", "fourth"):
        (place / "out" / name).write_text(f"{name} of the user")
    subprocess.run([sys.executable, "-c", KERAS], cwd=place, check=True, capture_output=True)
    before, paths = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}, {*place.rglob("*")}
    assert {"one.index", "checkpoint", "saved_model.pb", "model.weights.h5"} <= {path.name for path in before}
    said = rerun(KERAS + GFILE, place)
    assert {path: path.read_bytes() for path in before} == before
    assert {*place.rglob("*")} - {place / "record", place / "record" / "reruns"} == paths
    assert said[0].startswith("has its files back"), said


def test_what_a_rerun_makes_goes_as_the_next_one_would_go_on_from_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(place)
    monkeypatch.chdir(place)
    writes = "os.makedirs('runs/1'); open('runs/1/events', 'w'); open('.state', 'w'); os.symlink('runs', 'link')"
    assert rerun(f"import os; {writes}", place) == ["is cleared of what its rerun made: runs, link, .state."]
    assert contents(place) == before


def test_what_somebody_else_puts_into_a_new_folder_stays(place: Path) -> None:
    (reruns := place / "record" / "reruns").mkdir(parents=True)
    with keeping(reruns, place, lambda said: None) as kept:
        command = [sys.executable, "-c", "import os; os.mkdir('new'); open('new/made', 'w')"]
        record_command(command, RecordOptions(str(reruns / "out"), keep=str(kept)), subprocess.DEVNULL, place)
        (place / "new" / "of another").write_text("kept")
    assert contents(place / "new") == {"of another": "kept"}


def test_what_a_rerun_makes_elsewhere_stays_and_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    (place / "inner").mkdir()
    assert rerun("open('../new', 'w')", place / "inner") == ["made new files in its rerun, which stay: new."]
    assert (place / "new").exists()


def test_what_is_only_read_is_not_copied(place: Path) -> None:
    with h5py.File(place / "data.h5", "w"):
        pass
    reads = "open('best.pt').read(); open('out/1.pt', 'rb'); h5py.File('data.h5').close()"
    kept = "os.listdir(os.path.dirname(json.loads(os.environ['SAMESTEP_RECORD'])['keep']))"
    assert rerun(f"import h5py, json, os; {reads}; assert not [each for each in {kept} if each.isdigit()]", place) == []


def test_a_file_that_holds_what_it_held_is_left_alone(place: Path) -> None:
    inode = (place / "log.txt").stat().st_ino
    assert rerun("open('log.txt', 'r+').write('l')", place) == []
    assert (place / "log.txt").stat().st_ino == inode


KILLED = """
import os, pathlib, sys
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.put_back import keeping
from samestep.experiments.recording.rerun_folder import outermost
from samestep.experiments.recording.start import record_command

with keeping(pathlib.Path(sys.argv[1]), pathlib.Path.cwd(), print) as kept:
    program = "open('best.pt', 'w').write('other'); open('new', 'w')"
    record_command([sys.executable, "-c", program], RecordOptions(sys.argv[1] + "/out", keep=str(kept)))
    os._exit(9)
"""


def test_a_killed_diff_puts_back_next_time(place: Path) -> None:
    (reruns := place / "record" / "reruns").mkdir(parents=True)
    assert subprocess.run([sys.executable, "-c", KILLED, reruns], cwd=place, capture_output=True).returncode == 9
    assert (place / "best.pt").read_text() == "other"
    back, cleared = rerun("pass", place)
    assert back == f"has its files back as they were before the rerun: {place / 'best.pt'}."
    assert cleared == f"is cleared of what its rerun made: {place / 'new'}."
    assert (place / "best.pt").read_text() == "best.pt of the user" and not (place / "new").exists()


def test_what_changed_after_a_killed_diff_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has trained on since; what the files held before is kept as well."""
    (reruns := place / "record" / "reruns").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", KILLED, reruns], cwd=place, capture_output=True)
    monkeypatch.setattr("samestep.experiments.recording.put_back._SECONDS", 0.0)
    (place / "best.pt").write_text("trained on")
    (told,) = [*rerun_nothing(reruns), *rerun_nothing(reruns)]
    assert told.startswith(
        f"was cut off in a rerun; these may have changed since, so they stay: {place / 'best.pt'}; see "
    )
    assert (place / "best.pt").read_text() == "trained on"
    assert (reruns / "kept-1" / "0").read_text() == "best.pt of the user"


def test_what_could_not_be_put_back_is_not_put_back_later(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then it may hold something newer."""
    (reruns := place / "record" / "reruns").mkdir(parents=True)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    subprocess.run([sys.executable, "-c", KILLED, reruns], cwd=place, capture_output=True)
    with monkeypatch.context() as patch:
        patch.setattr("samestep.experiments.recording.put_back._put_file_back", fail)
        with pytest.raises(WorkerFailed, match=r"best.pt was changed by a rerun .*No space left.*kept-1/0\."):
            rerun_nothing(reruns)
    (place / "best.pt").write_text("newer")
    assert rerun_nothing(reruns) == []
    assert (place / "best.pt").read_text() == "newer"
    assert (reruns / "kept-1" / "0").read_text() == "best.pt of the user"


def test_the_list_of_a_copied_record_is_not_believed(place: Path) -> None:
    kept = place / "record" / "reruns" / "kept"
    kept.mkdir(parents=True)
    (kept / "kept.jsonl").write_text(f'{{"kind": "file", "copy": "0", "path": "{place / "best.pt"}"}}\n')
    (kept / "0").write_text("of another")
    with pytest.raises(WorkerFailed, match="an interrupted rerun left elsewhere; move it away"):
        rerun("pass", place)
    assert (place / "best.pt").read_text() == "best.pt of the user"


def test_what_cannot_be_copied_is_not_changed(place: Path) -> None:
    (reruns := place / "record" / "reruns").mkdir(parents=True)
    (place / "script.py").write_text(
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); open('best.pt', 'w').write('x')"
    )
    (place / "best.pt").write_text(whole := "of the user" * 1000)
    with keeping(reruns, place, lambda said: None) as kept:
        options = RecordOptions(str(reruns / "out"), keep=str(kept))
        ended = record_command([sys.executable, "script.py"], options, subprocess.DEVNULL, place)
    assert (place / "best.pt").read_text() == whole
    assert ended.exit_code == 1
    assert ended.notes == (
        f"a rerun was about to change {place / 'best.pt'}, which cannot be copied first: File too large",
    )


def test_reruns_of_a_rerun_keep_files_at_the_record() -> None:
    assert (
        outermost(Path("runs/A/reruns/unchanged-0/reruns")) == outermost(Path("runs/A/reruns")) == Path("runs/A/reruns")
    )


def test_one_rerun_of_a_record_is_made_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with keeping(tmp_path, tmp_path, order.append):
            order.append("second")

    with keeping(tmp_path, tmp_path, order.append):
        (thread := threading.Thread(target=second)).start()
        while not order:
            time.sleep(0.01)
        order.append("first ends")
    thread.join(timeout=30)
    assert order == ["is being run again by another command; this one waits ...", "first ends", "second"]
