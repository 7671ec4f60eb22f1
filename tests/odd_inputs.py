"""Odd inputs of every kind, from a seed: flags, files of runs, TOML, CSV, arrays, pipes, deep JSON, the environment.

    python -m tests.odd_inputs SEED FIRST COUNT FOLDER

gives them to the real `main`, one after the other in this process, and prints what is wrong: a traceback, a hang, an exit code
that no page documents, a character that a terminal obeys.
"""

import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import socket
import struct
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import FrameType

import numpy as np

from samestep.__main__ import main
from samestep.common.flags import flags, spell_flag
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.techniques import Techniques
from samestep.common.workload.data.dataset import ARRAYS
from tests.results import REAL, leave, made

SECONDS = 20.0
"""For each: the machine may be busy with something else."""
MEMORY_BYTES = 8 * 2**30
"""More than any of these may take: what reads without end fails here, and not by filling the machine."""
CODES = (0, 1, 2, 3, 4)
DATA = REAL.parents[1]


@dataclasses.dataclass(frozen=True)
class Odd:
    """An odd input.

    Attributes:
        name: What is odd, and where.
        arguments: Of `samestep`.
        environment: What is set beside.
    """

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


# --- what stands where a file should ----------------------------------------------------------------------------------

Ruin = Callable[[Path, random.Random], None]


def instead(make: Callable[[Path], object]) -> Ruin:
    def ruin(path: Path, draw: random.Random) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return ruin


def listening(path: Path) -> None:
    os.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(path.name)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 * 2**30)


def flipped(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 8)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    path.write_bytes(content)


def cut(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


ODD_VALUES = (
    None, True, 0, -1, 2**62, 10**9, 2**70, 10**400, 1e308, float("nan"), float("inf"), "", "x", "x" * 10_000,
    "\x1b]0;pwn\x07\x1b[2J", "\u202eabc", "\ud800", "\0", "\r\n", [], [[]], {}, {"": {}}, [None],
    "../../etc/passwd", "<img src=x onerror=alert(1)>", "float8", "torch:ddp",
)  # fmt: skip


def swapped(path: Path, draw: random.Random) -> None:
    """Puts an odd value somewhere into a JSON file, or into a line of one."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    at = draw.randrange(len(lines))
    values = json.loads(lines[at])
    holder, key = {"whole": values}, "whole"
    while (
        isinstance(inner := holder[key], dict | list) and inner and draw.random() < 0.7
    ):  # the first level counts most
        holder, key = inner, draw.choice([*inner] if isinstance(inner, dict) else range(len(inner)))
    alike = [odd for odd in ODD_VALUES if type(odd) is type(holder[key])]
    holder[key] = draw.choice(alike if alike and draw.random() < 0.7 else ODD_VALUES)
    values = values if key != "whole" else holder[key]
    path.write_text("\n".join([*lines[:at], json.dumps(values), *lines[at + 1 :]]) + "\n")


def other_line(path: Path, draw: random.Random) -> None:
    """Changes a value of a TOML or CSV file."""
    lines = path.read_text().splitlines()
    at = draw.randrange(len(lines))
    mark = "=" if path.suffix == ".toml" else ","
    head, _, _ = lines[at].rpartition(mark)
    odd = ["", "x", "-1", "nan", "1e400", '"\\u001b]0;pwn"', "[]", "{}", "[" * 5000, "9" * 5000, "2024-99-99", "''"]
    lines[at] = f"{head}{mark} {draw.choice(odd)}"
    path.write_text("\n".join(lines) + "\n")


RUINS: dict[str, Ruin] = {
    "a pipe": instead(os.mkfifo),
    "/dev/zero": instead(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": instead(lambda path: path.symlink_to(path.name)),
    "a link to nothing": instead(lambda path: path.symlink_to("nothing")),
    "the memory of the process": instead(lambda path: path.symlink_to("/proc/self/mem")),
    "a folder": instead(Path.mkdir),
    "a socket": instead(listening),
    "nothing": instead(lambda path: None),
    "an empty file": instead(Path.touch),
    "3 GiB of zeros": instead(sparse),
    "100,000 brackets": instead(lambda path: path.write_bytes(b"[" * 100_000)),
    "900 objects within each other": instead(lambda path: path.write_text('{"a":' * 900 + "1" + "}" * 900)),
    "900 lists within each other": instead(lambda path: path.write_text("[" * 900 + "]" * 900)),
    "a deep table": instead(lambda path: path.write_text(".".join(["a"] * 100_000) + " = 1\n")),
    "bytes that are no text": instead(lambda path: path.write_bytes(b"\xff\xfe\x00\x80" * 100)),
    "a number of 5,000 digits": instead(lambda path: path.write_text("9" * 5000)),
    "NaN": instead(lambda path: path.write_text("NaN\n")),
    "null": instead(lambda path: path.write_text("null\n")),
    "an empty list": instead(lambda path: path.write_text("[]\n")),
    "text with escapes": instead(lambda path: path.write_text('"\\u001b]0;pwn\\u0007" \x1b]0;pwn\x07 = \x1b[2J\n')),
    "other bytes": flipped,
    "its beginning": cut,
}
OF_KIND: dict[str, tuple[Ruin, ...]] = {
    ".json": (swapped,) * 3,
    ".jsonl": (swapped,),
    ".toml": (other_line,),
    ".csv": (other_line,),
}
"""What is odd in files of a kind; the more often it stands here, the more often it is tried."""


def ruin(path: Path, draw: random.Random) -> str:
    """Makes a file an odd one; says which."""
    own = [("an odd value", each) for each in OF_KIND.get(path.suffix, ())]
    name, how = draw.choice([*RUINS.items(), *own * 4])
    how(path, draw)
    return name


# --- kinds of input ---------------------------------------------------------------------------------------------------


def a_run(folder: Path, cell: str = "torch:ddp", failed: bool = False) -> Path:
    """A run directory with every file that a command reads."""
    leave(folder, made(cell))
    if failed:
        (folder / "result.json").unlink()
        write_json(folder / "error.json", {"type": "WorkerFailed", "role": "rank-0", "message": "rank-0 ended"})
    events = [
        {"ph": "M", "pid": 0, "tid": tid, "name": name, "args": {"name": text}}
        for tid, name, text in (
            (0, "process_name", "rank-0"),
            (0, "thread_name", "compute"),
            (1, "thread_name", "wait"),
        )
    ]
    events.append({"ph": "X", "pid": 0, "tid": 0, "name": "forward", "ts": 1.0, "dur": 2.0, "args": {"step": 3}})
    write_json(folder / "trace.json", {"traceEvents": events})
    np.savez(folder / "state.npz", step=np.int64(4), **{"params/w": np.ones(3)})
    return folder


def of_a_run(folder: Path, draw: random.Random) -> Odd:
    failed = draw.random() < 0.3
    run = a_run(folder / "runs" / "one", failed=failed)
    files = ["config.json", "error.json" if failed else "result.json", "metrics.jsonl", "trace.json", "state.npz"]
    file = draw.choice([*files, files[1], files[1]])
    name = ruin(run / file, draw)
    commands = [
        ("report", "runs", "-o", "page.html"),
        ("report", "runs/one", "--format", draw.choice(["github", "json", "csv"])),
        ("export", "runs", "--to", "tensorboard", "-o", "out"),
        ("export", "runs/one", "--format", "safetensors", "-o", "out"),
        ("clean", *draw.choice([(), ("--runs",)])),
        ("run", "torch:ddp", "--start-from", "runs/one", "--prepare", "--out", "new"),
        ("compare", "--against", "runs/one", "--strategies", "torch:nope"),
        ("compare", "--resume", "runs/one"),
        ("advise", "--nodes", "1", "--calibrate", "runs/one"),
    ]
    return Odd(f"{name} as {file}", draw.choice(commands))


def of_a_comparison(folder: Path, draw: random.Random) -> Odd:
    whole = folder / "runs" / "comparison"
    cells = ["numpy:oracle", "torch:ddp", "torch:single"]
    for cell in cells:
        a_run(whole / cell.replace(":", "-") / ("" if cell == cells[0] else "1"), cell)
    (whole / "compare.toml").write_text(
        'strategies = ["torch:ddp", "torch:single"]\nsteps = 20\n\n[vary]\nseed = [0, 1]\n'
    )
    files = [*whole.rglob("result.json"), *[whole / "compare.toml"] * 4, *whole.rglob("config.json")]
    file = draw.choice(files)
    name = ruin(file, draw)
    commands = [
        ("report", str(whole), "-o", "page.html"),
        ("report", str(whole), "--format", draw.choice(["github", "json", "csv"])),
        ("export", str(whole), "--to", "tensorboard", "-o", "out"),
        ("compare", "--file", str(whole / "compare.toml"), "--reference", "torch:nope"),
        ("compare", "--resume", str(whole), "--steps", "21"),
        ("compare", "--against", str(whole), "--strategies", "torch:nope"),
        ("clean", "--runs"),
    ]
    return Odd(f"{name} as {file.name} of a comparison", draw.choice(commands))


def of_a_machine(folder: Path, draw: random.Random) -> Odd:
    rates = {
        "gpus_per_node": 8,
        "processors": 100,
        "memory_bytes": 8e10,
        "peak_flops_per_second": 3e14,
        "memory_bytes_per_second": 2e12,
        "node_bytes_per_second": 3e11,
        "network_bytes_per_second": 1e11,
    }
    text = 'title = "mine"\n' + "".join(
        f'\n[{name}]\nvalue = {value}\nsource = "me"\n' for name, value in rates.items()
    )
    (folder / "machine.toml").write_text(text)
    name = ruin(folder / "machine.toml", draw)
    return Odd(f"{name} as a machine", ("advise", "--workload", "prose-gpt", "--machine", "machine.toml"))


def of_rows(folder: Path, draw: random.Random) -> Odd:
    from samestep.common.seconds.measured_iterations import COLUMNS
    from samestep.common.seconds.measured_iterations import SECONDS as TIME

    values = dict.fromkeys(COLUMNS.values(), "1") | {TIME: "10", "hidden size": "64", "sequence length": "32"}
    (folder / "rows.csv").write_text(",".join(values) + "\n" + 3 * (",".join(values.values()) + "\n"))
    name = ruin(folder / "rows.csv", draw)
    return Odd(f"{name} as rows", ("predict", "--validate", "vtrain", "--rows", "rows.csv"))


def npy(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def of_arrays(folder: Path, draw: random.Random) -> Odd:
    arrays = {
        name: np.zeros((8, 4) if name.endswith("inputs") else 8, np.float32 if name.endswith("inputs") else int)
        for name in ARRAYS
    }
    odd = {
        "objects": np.array([{}], object),
        "no examples": np.zeros((0, 4)),
        "a scalar": np.float64(1),
        "text": np.array(["x"] * 8),
        "complex numbers": np.zeros((8, 4), complex),
        "times": np.zeros(8, "M8[s]"),
        "NaN": np.full((8, 4), np.nan),
        "1e300": np.full((8, 4), 1e300),
        "-1": np.full(8, -1),
        "2^62": np.full(8, 2**62),
        "many dims": np.zeros((8,) + (1,) * 30),
        "records": np.zeros(8, [("a", "f8")]),
        "half": np.zeros((8, 4), np.float16),
        "booleans": np.zeros(8, bool),
    }
    file, which = folder / "mine.npz", draw.choice(ARRAYS)
    how = draw.choice([*odd, "twice", "claims", "a file"])
    with zipfile.ZipFile(file, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, array in arrays.items():
            content = npy(odd[how] if name == which and how in odd else array)
            if how == "claims" and name == which:
                header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2 ** draw.randint(10, 70)}, 4), }}\n"
                content = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header.encode()
            archive.writestr(f"{name}.npy", content)
        if how == "twice":
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                archive.writestr(f"{which}.npy", npy(arrays[which] + 1))
    name = f"{how} as {which}" if how != "a file" else ruin(file, draw)
    workload = draw.choice(["digits-mlp", "mnist-cnn", "prose-gpt", "flights-ranker"])
    return Odd(
        f"{name} as data",
        ("predict", draw.choice(["torch:ddp", "tf:mirrored"]), "--data", "mine.npz", "--workload", workload),
    )


TEXTS = (
    "", " ", "0", "-1", "1.5", "1e400", "1e-320", "nan", "inf", "9" * 5000, "x", "x" * 5000, "--", "=", "+",
    "a=b", "a=b,a=c", ",", ":", "torch:", ":ddp", "torch:ddp+", "torch:ddp+x",
    "torch:ddp+devices=4+devices=2", "\x1b]0;pwn\x07", "\u202e", "\udcff", "é", "\n", "/dev/null",
    "/dev/zero", "/proc/self/mem", ".", "..", "/", "~", "%s%n", "{}", "$HOME", "data=2", "data=0",
    "data=2,data=2", "true", "null", "float8", "x" * 300 + "/y", "4294967296", "0x10", "1_000", "٣",
)  # fmt: skip


def of_flags(folder: Path, draw: random.Random) -> Odd:
    names = [spell_flag(name) for owner in (RunConfig, Techniques) for name in flags(owner)]
    own = {
        "predict": [*names, "--device-memory", "--strategy", "--validate", "--rows", "--format"],
        "run": names,
        "compare": [
            *names,
            "--vary",
            "--require",
            "--repeats",
            "--scaling",
            "--file",
            "--resume",
            "--against",
            "--allow",
            "--format",
        ],
        "advise": [
            "--workload",
            "--batch-size",
            "--machine",
            "--nodes",
            "--mesh",
            "--weights",
            "--calibrate",
            "--format",
            "--model",
        ],
        "report": ["-o", "--allow", "--format"],
        "strategies": ["--format", "--framework"],
        "export": ["--to", "--format", "-o"],
        "clean": ["--runs", "--x"],
        "port": ["--model", "--data", "--steps", "--batch-size"],
    }
    command = draw.choice(list(own))
    words: list[str] = draw.choice([[], [draw.choice(["torch:ddp", "tf:mirrored", "ddp", draw.choice(TEXTS)])]])
    for _ in range(draw.randint(1, 4)):
        name, text = draw.choice(own[command]), draw.choice(TEXTS)
        words += draw.choice([[name, text], [f"{name}={text}"], [name]])
    last = {"run": ["--prepare", "--out", "new", "--start-from", "nowhere"], "compare": ["--reference", "torch:nope"]}
    last["port"] = ["--model", "nowhere.py"]
    last["export"] = ["--to", "tensorboard"]
    return Odd(f"flags of {command}", (command, *words, *last.get(command, ())))


def of_the_environment(folder: Path, draw: random.Random) -> Odd:
    a_run(folder / "runs" / "one")
    os.mkfifo(folder / "pipe")
    names = [
        "SOURCE_DATE_EPOCH",
        "COLUMNS",
        "LINES",
        "XDG_CACHE_HOME",
        "HOME",
        "TZ",
        "LANG",
        "NO_COLOR",
        "TERM",
        "RANK",
        "TF_CONFIG",
    ]
    texts = [text for text in TEXTS if "\0" not in text] + [str(folder / "pipe"), str(folder / "runs")]
    commands = [
        ("clean",),
        ("report", "runs", "-o", "page.html"),
        ("predict", "torch:fsdp"),
        ("strategies",),
        ("run", "--steps", "0"),
    ]
    given = {name: draw.choice(texts) for name in draw.sample(names, 3)}
    return Odd(f"environment: {', '.join(given)}", draw.choice(commands), given)


def of_places(folder: Path, draw: random.Random) -> Odd:
    """Where something cannot be written, or is not what it is taken for."""
    run = a_run(folder / "runs" / "one")
    os.mkfifo(folder / "pipe")
    (folder / "file").write_text("x")
    place = draw.choice(
        [
            "pipe",
            "file",
            "file/below",
            "/proc/x/y",
            "/dev/full",
            "/dev/null/x",
            "x" * 300,
            "nothing/there",
            ".",
            "/proc/self/fd/999",
            "",
        ]
    )
    commands = [
        ("report", str(run), "-o", place),
        ("report", place),
        ("export", str(run), "--to", "tensorboard", "-o", place),
        ("export", place, "--to", "tensorboard"),
        ("run", "torch:ddp", "--prepare", "--out", place if place not in (".", "") else "file"),
        ("compare", "--strategies", "torch:ddp", "--data", place, "--reference", "torch:ddp"),
        ("compare", "--against", place, "--strategies", "torch:nope"),
        ("compare", "--resume", place),
        ("compare", "--file", place),
        ("predict", "torch:ddp", "--data", place),
        ("run", "torch:ddp", "--start-from", place, "--prepare"),
        ("run", "torch:ddp", "--model", place, "--data", place),
        ("advise", "--machine", f"{place}.toml"),
        ("advise", "--calibrate", place),
    ]
    return Odd(f"{place[:20]!r} as a place", draw.choice(commands))


KINDS = (
    of_a_run,
    of_a_run,
    of_a_run,
    of_a_comparison,
    of_a_machine,
    of_rows,
    of_arrays,
    of_flags,
    of_flags,
    of_the_environment,
    of_places,
)


# --- giving them ------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """It took too long."""


def too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


def wrong(odd: Odd, folder: Path) -> str:
    """What is wrong with how a command answered; "" if nothing."""
    said = folder.parent / f"{folder.name}.out"
    with said.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv, code, trace = ["samestep", *odd.arguments], None, ""
    before = dict(os.environ)
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache")} | dict(odd.environment)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:
        trace = "".join(traceback.format_exception(error)[-3:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os.environ.clear()
        os.environ.update(before)
    text = said.read_bytes().decode(errors="replace")
    said.unlink()
    if trace or "Traceback" in text:
        return f"traceback: {trace or text[-2000:]}"
    if code not in CODES:
        return f"exit code {code}"
    if controls := {each for each in text if not each.isprintable() and each not in "\n\t"}:
        return f"prints {controls}"
    if code == 2 and text.count("samestep: ") != 1:
        return f"not one line: {text[-1500:]}"
    return ""


def give(seed: int, first: int, count: int, folder: Path) -> Iterator[tuple[int, Odd, str]]:
    """Gives odd inputs, the same ones for the same seed and number."""
    home = Path.cwd()
    for number in range(first, first + count):
        draw = random.Random(f"{seed} {number}")
        place = folder / str(number)
        place.mkdir()
        os.chdir(place)
        odd = KINDS[number % len(KINDS)](place, draw)
        os.chdir(place)
        found = wrong(odd, place)
        os.chdir(home)
        shutil.rmtree(place)
        yield number, odd, found


def run(seed: int, first: int, count: int, folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, too_long)
    with os.fdopen(os.dup(1), "w") as answers:
        for number, odd, found in give(seed, first, count, folder):
            told = {
                "number": number,
                "name": odd.name,
                "arguments": odd.arguments,
                "environment": odd.environment,
                "wrong": found,
            }
            answers.write(json.dumps(told) + "\n")
            answers.flush()


if __name__ == "__main__":
    run(*map(int, sys.argv[1:4]), Path(sys.argv[4]).resolve())
