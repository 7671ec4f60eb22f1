"""Files are read through one door, `common/files/reading.py`: nothing else in the product opens one for reading."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("common", "torch_impl", "tf_impl", "experiments")
DOOR = "common/files/reading.py"
READS = {"read_text", "read_bytes", "fromfile", "loadtxt", "genfromtxt", "memmap", "file_digest"}
"""Methods and functions of modules that open a file themselves, whatever they are called on."""
OPENS = {"open", "fdopen"}
LOADS = {
    "json.load",
    "tomllib.load",
    "pickle.load",
    "np.load",
    "numpy.load",
    "torch.load",
    "fileinput.input",
    "linecache.getline",
}
ALLOWED = {
    "common/files/arrays.py: archive.open": "a member of an archive that came through the door",
    "experiments/cli/completion.py: (_SCRIPTS / f'completion.{shell}').read_text": "a file of this package",
    "common/workload/data/flights.py: archive.open": "likewise",
    "common/workload/data/images.py: np.loadtxt": "bytes that came through the door",
    "common/runtime/worker/fork_server.py: os.fdopen": "the pipe to the launcher",
    "common/runtime/worker/loop.py: windows.open": "no file: a window of steps begins",
    "common/runtime/worker/loop.py: traffic.open": "no file: bytes are counted from here on",
    "common/runtime/processes.py: Path(f'/proc/{pid}/stat').read_text": "the kernel's",
    "common/runtime/processes.py: (folder / 'stat').read_text": "the kernel's",
    "common/runtime/processes.py: (folder / 'environ').read_bytes": "the kernel's",
    "common/runtime/worker/child_processes.py: path.read_text": "the kernel's",
    "common/runtime/step_parts.py: (tasks / str(number) / 'schedstat').read_text": "the kernel's",
    "common/runtime/step_parts.py: (tasks / str(number) / 'comm').read_text": "the kernel's",
    "common/files/silence.py: os.open": "/dev/null, in the place of stderr",
    "common/workload/outputs.py: os.open": "/dev/null, in the place of an output that a user's code closed",
    "experiments/cli/browser.py: webbrowser.open": "no file of ours to read: the browser shows a page",
    "common/runtime/parent/processes/scratch.py: Path('/proc/sys/kernel/random/boot_id').read_text": "the kernel's",
    "common/runtime/parent/processes/scratch.py: os.open": "whose a folder is: follows no link, plain and small",
    "common/runtime/parent/processes/scratch.py: os.fdopen": "likewise",
    "common/runtime/parent/processes/scratch.py: json.load": "likewise",
    "common/files/written.py: os.open": "a directory's own list: follows no link, plain and ours",
    "common/files/written.py: os.fdopen": "likewise",
    "common/files/writing.py: os.open": "made or written in place",
    "common/files/writing.py: os.fdopen": "likewise",
    "common/runtime/directory.py: os.open": "config.json, to see whether a process holds its lock",
    "common/runtime/checkpoints/writing.py: os.fdopen": "a checkpoint, to write it",
    "common/runtime/checkpoints/ledger_file.py: os.fdopen": "the ledger of examples, to write it",
    "common/steps/writing.py: os.fdopen": "metrics.jsonl, to write it",
    "common/runtime/parent/processes/memory_kills.py: (self._cgroup / name).read_text": "the kernel's",
    "common/runtime/parent/processes/memory_kills.py: Path('/proc/self/cgroup').read_text": "the kernel's",
    "common/runtime/parent/processes/memory_kills.py: os.open": "the kernel's log, without waiting",
    "common/steps/recording.py: os.fdopen": "a record, to write it",
    "experiments/recording/injected/keeping.py: open": "the list of what a rerun changes, to append to it",
    "experiments/recording/injected/sitecustomize.py: os.open": "the notes of a recorded command, to append to them",
    "common/runtime/parent/merge.py: Path('/proc/cpuinfo').read_text": "the kernel's",
    "common/runtime/worker/disturbances.py: accounts.read_text": "the kernel's",
    "common/runtime/worker/private_network.py: os.open": "the kernel's: a namespace, to enter it",
    "common/runtime/worker/links.py: os.open": "likewise",
    "common/runtime/worker/fork_server.py: os.open": "/dev/null, and a log to write",
    "common/runtime/worker/worker.py: os.open": "config.json, to lock a byte of it",
    "common/runtime/directory.py: os.fdopen": "error.json, written in place; read by the door",
    "common/files/locks.py: os.open": "a directory, to lock it",
    "experiments/cli/ending.py: os.open": "/dev/null",
    "experiments/submitting/jobs.py: os.fdopen": "the log of an engine, to write it",
    "experiments/recording/start.py: notes.open": "made here, and open before the command runs, which may remove it",
    "experiments/recording/foreground.py: open": "the kernel's: which signals wait for a process",
    "common/files/output_file.py: os.open": "the file that a user named, written into a pipe or a device",
    "common/files/output_file.py: os.fdopen": "likewise",
}
"""File and call -> why it may."""


def reads(file: str, text: str) -> list[str]:
    """The calls in a file that open files, but for those that write."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        modes = [
            *node.args[0 if isinstance(node.func, ast.Attribute) else 1 :],
            *(k.value for k in node.keywords if k.arg == "mode"),
        ]
        writes = any(
            isinstance(m, ast.Constant) and isinstance(m.value, str) and m.value[:1] in set("wax") for m in modes[:1]
        )
        if (
            (name in READS and called != name)
            or called in LOADS
            or (name in OPENS and not (writes and not called.startswith("os.")))
        ):
            found.append(f"{file}: {called}")
    return found


FILES = {str(path.relative_to(ROOT)): path.read_text() for name in FOLDERS for path in (ROOT / name).rglob("*.py")}
FILES |= {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "samestep").glob("*.py")}


def test_nothing_else_opens_a_file_for_reading() -> None:
    found = {
        call for file, text in FILES.items() if file != DOOR and "/defects/" not in file for call in reads(file, text)
    }
    assert found - ALLOWED.keys() == set(), "read it through common/files/reading.py, or say here why it may not be"
    assert ALLOWED.keys() - found == set(), "these are gone"


@pytest.mark.parametrize(
    "line",
    [
        "path.read_text()",
        "Path(a, b).read_bytes()",
        "open(path)",
        "open(path, 'rb')",
        "path.open()",
        "path.open('r')",
        "path.open(mode='rb')",
        "os.open(path, os.O_RDONLY)",
        "os.fdopen(descriptor)",
        "io.open(path)",
        "gzip.open(path)",
        "np.load(path)",
        "json.load(file)",
        "np.loadtxt(path)",
    ],
)
def test_a_call_that_reads_is_found(line: str) -> None:
    assert reads("file.py", line) != []


@pytest.mark.parametrize(
    "line", ["path.open('wb')", "open(path, 'w')", "path.open('a', buffering=1)", "path.write_text(a)"]
)
def test_a_call_that_writes_is_left_to_those_who_write(line: str) -> None:
    assert reads("file.py", line) == []
