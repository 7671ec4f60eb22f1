"""`samestep record` leaves a command as it is, and says in one line what it could not do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.files.locks import sole_user
from samestep.common.runtime.parent.attempts import first_new
from samestep.common.steps.failures import spell_taken
from samestep.common.steps.record import rank_file
from samestep.experiments.record import main
from tests.recording.records import ROOT, SCRIPTS, read, record

PLAIN = (sys.executable, str(SCRIPTS / "plain.py"))
UNFRAMED = (SCRIPTS / "unframed.py").read_text()


@pytest.mark.torch
def test_output_and_exit_code_are_the_commands_own(tmp_path: Path) -> None:
    bare = subprocess.run([*PLAIN, "--fail"], capture_output=True, text=True, timeout=100, check=False)
    done = record("--out", str(tmp_path / "out"), "--", *PLAIN, "--fail")
    assert done.returncode == bare.returncode == 3
    assert done.stdout == bare.stdout
    assert done.stderr == f"samestep: recorded 12 steps, 1 rank, 6 tensors in {tmp_path / 'out'}\n"
    ((header, _),) = read(tmp_path / "out")
    assert header.command == (*PLAIN, "--fail") and not header.is_from_input


@pytest.mark.torch
def test_torchrun_is_recorded_and_the_default_directory_is_in_runs(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = record("--stop-after", "2", "--", *launcher, str(SCRIPTS / "layouts.py"), "ddp", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = (tmp_path / "runs").glob("*-layouts")
    assert [len(steps) for _, steps in read(found)] == [3, 3]


@pytest.mark.torch
def test_a_killed_run_keeps_its_steps(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text((SCRIPTS / "plain.py").read_text().replace("range(12)", "range(10**9)"))
    line = [
        sys.executable,
        "-m",
        "samestep",
        "record",
        "--out",
        str(tmp_path / "out"),
        "--",
        sys.executable,
        "-",
    ]
    with (
        script.open() as program,
        subprocess.Popen(
            line, cwd=ROOT, stdin=program, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process,
    ):
        try:
            path = tmp_path / "out" / rank_file(0)
            while not (path.exists() and path.stat().st_size > 20_000):
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)
            _, error = process.communicate(timeout=100)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # else the script is waited for, and has no end
            raise
    assert process.returncode == 137
    ((header, steps),) = read(tmp_path / "out")
    assert len(steps) > 5 and header.is_from_input
    assert "samestep: recorded" in error


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--"], 2, "no command is given"),
        (["--", "no-such-program"], 2, "command 'no-such-program' is not found"),
        (["--every", "0", "--", "true"], 2, "--every is 0; give a whole number from 1 on"),
        (["--stop-after", "0", "--", "true"], 2, "--stop-after is 0; give a whole number from 1 on"),
        (["--out", str(SCRIPTS), "--", "true"], 2, "is not an empty directory"),
        (["--", "true"], 3, "no Python of the command loaded the recorder"),
        (["--", sys.executable, "-I", "-c", "pass"], 3, "`python -I`"),
        (
            ["--", "env", "PYTHONPATH=src", sys.executable, "-c", "pass"],
            3,
            "or overwrites PYTHONPATH (keep what is in it",
        ),
        (["--", sys.executable, "-c", "pass"], 3, "imported neither torch nor keras"),
        (["--", sys.executable, "-c", "raise SystemExit(7)"], 7, "exit code 7 before its first step"),
        pytest.param(
            ["--", sys.executable, "-c", "import torch"],
            3,
            "after backward() or torch.autograd.grad()",
            marks=pytest.mark.torch,
        ),
    ],
)
def test_what_cannot_be_recorded_is_said_in_one_line(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    done = record(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("samestep: ") and said in done.stderr


def test_a_sitecustomize_that_is_shadowed_runs(tmp_path: Path) -> None:
    """And a framework, here one of nothing, is imported without a search for garbage, which goes on afterwards."""
    (tmp_path / "sitecustomize.py").write_text("print('shadowed')")
    (tmp_path / "torch.py").write_text("import gc; print(gc.isenabled())")
    script = (
        "import gc, sys, sitecustomize; print(sitecustomize.__file__, any('samestep-' in each for each in sys.path));"
    )
    script += "import torch; print(gc.isenabled())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    line = [
        sys.executable,
        "-m",
        "samestep",
        "record",
        "--out",
        str(tmp_path / "out"),
        "--",
        sys.executable,
        "-c",
        script,
    ]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=100, check=False)
    expected = ["shadowed", f"{tmp_path / 'sitecustomize.py'} False", "False", "True"]
    assert done.stdout.splitlines()[-4:] == expected, done.stdout + done.stderr


TAPES = "class GradientTape:\n    def __enter__(self):\n        print('entered')\n"
FUNCTIONS = """
import sys, types
class Function:
    def __call__(self, *arguments):
        print('called')
        GradientTape().__enter__()
name = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
sys.modules[name] = types.SimpleNamespace(Function=Function)
"""


@pytest.mark.parametrize(
    ("more", "run", "said"),
    [
        ("", "tape = tensorflow.GradientTape(); tape.__enter__(), tape.__enter__()", ["entered", "entered"]),
        (FUNCTIONS, "call = tensorflow.Function(); call(1), call(1)", ["called", "entered"] * 2),
    ],
    ids=["tape", "function"],
)
def test_plain_tensorflow_waits_for_its_first_tape_or_function(
    tmp_path: Path, more: str, run: str, said: list[str]
) -> None:
    """The first tape may be in a function, which is followed from its call on then, as the training of Keras 2 is."""
    (tmp_path / "tensorflow.py").write_text(TAPES + more)
    (tmp_path / "keras.py").write_text("print('keras')")
    script = f"import tensorflow; print('begin'); {run}"
    line = [sys.executable, "-m", "samestep", "record", "--out", str(tmp_path / "out"), "--", sys.executable, "-c"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run([*line, script], env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split() == ["begin", "keras", *said], done.stderr


@pytest.mark.torch
def test_a_full_disk_ends_the_record_and_not_the_script(tmp_path: Path) -> None:
    script = f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{(SCRIPTS / 'plain.py').read_text()}"
    (tmp_path / "full.py").write_text(script)
    # Python would keep what fits of the bytecode that it compiles here, and no later process could import such a module.
    alone = "export PYTHONDONTWRITEBYTECODE=1"
    command = f"{alone}; ulimit -f 4; cd /; exec {sys.executable} {tmp_path / 'full.py'} --fail"
    done = record("--out", str(tmp_path / "out"), "--", "bash", "-c", command)
    assert done.returncode == 3 and done.stdout.startswith("done")
    ended, recorded = done.stderr.splitlines()
    assert ended.startswith("samestep: the record ends at step") and ended.endswith(": File too large.")
    assert recorded.startswith("samestep: recorded ")
    assert read(tmp_path / "out")[0][0].directory == str(ROOT)  # from which a rerun starts the whole command


def test_a_file_that_is_no_program_is_refused_in_one_line(tmp_path: Path) -> None:
    (program := tmp_path / "train").write_text("no first line\n")
    program.chmod(0o700)
    done = record("--out", str(tmp_path / "out"), "--", str(program))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"command '{program}' cannot be started: Exec format error; name the program" in done.stderr
    assert not (tmp_path / "out").exists()


def test_of_two_commands_that_record_into_one_directory_one_alone_does(tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    with (
        sole_user(out, "held"),
        pytest.raises(ConfigError, match="out is being recorded into by another command; wait"),
    ):
        main(["--out", str(out), "--", sys.executable, "-c", "raise SystemExit(7)"])
    assert main(["--out", str(out), "--", sys.executable, "-c", "raise SystemExit(7)"]) == 7


def test_a_command_that_trains_twice_is_told_what_to_record(tmp_path: Path) -> None:
    (path := tmp_path / rank_file(0)).touch()
    assert spell_taken(path).endswith(
        "was not recorded. If the command trains several times, record each training alone."
    )


def test_a_name_that_another_command_takes_first_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    names = iter([tmp_path / "1", tmp_path / "2"])
    assert first_new(lambda: next(names)) == tmp_path / "2"


def test_a_disk_that_takes_no_step_leaves_no_record(tmp_path: Path) -> None:
    script = f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{UNFRAMED}"
    (tmp_path / "full.py").write_text(script)
    command = f"export PYTHONDONTWRITEBYTECODE=1; ulimit -f 1; exec {sys.executable} {tmp_path / 'full.py'}"
    done = record("--out", str(tmp_path / "out"), "--", "bash", "-c", command)
    assert done.returncode == 3 and done.stdout.startswith("done")
    assert done.stderr == "samestep: nothing is recorded: the record ends at step 0: File too large.\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        ("shutil.rmtree(out)", 3, "nothing is recorded: something removed or moved"),
        ("os.rename(out, out + '-moved')", 3, "nothing is recorded: something removed or moved"),
        ("shutil.rmtree(out); os.mkdir(out)", 3, "nothing is recorded: something removed or moved"),
        (
            "[shutil.rmtree(each) for each in pathlib.Path(temporary).iterdir()]",
            0,
            "something removed the folder of temp",
        ),
    ],
    ids=["removed", "moved", "made anew", "temporary files"],
)
def test_a_script_that_cleans_folders_is_told_what_became_of_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, code: int, said: str
) -> None:
    out, temporary, script = tmp_path / "out", tmp_path / "temporary", tmp_path / "cleaning.py"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    known = f"import os, pathlib, shutil; out, temporary = {str(out)!r}, {str(temporary)!r}"
    script.write_text(UNFRAMED.replace("print(", f"{known}\n{does}\nprint("))
    done = record("--out", str(out), "--", sys.executable, str(script))
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(f"samestep: {said}") and done.stderr.count("\n") == 1 + (code == 0)
    assert code or done.stderr.splitlines()[1].startswith("samestep: recorded 12 steps")


@pytest.mark.torch
def test_a_script_that_never_steps_its_optimizer_is_told_what_counts_as_a_step(tmp_path: Path) -> None:
    script = (SCRIPTS / "plain.py").read_text().replace("    optimizer.step()\n    schedule.step()\n", "")
    done = record("--out", str(tmp_path / "out"), "--", sys.executable, "-c", script)
    assert done.returncode == 3
    assert "in torch, an optimizer's step(), or where none is called, weights that" in done.stderr


def test_workers_that_are_not_needed_any_more_end_without_a_word(tmp_path: Path) -> None:
    """Who watches over its workers, as a DataLoader does, raises where one is killed; and a full pipe takes its time."""
    script = tmp_path / "watching.py"
    script.write_text(
        "import multiprocessing, signal, sys, time\n"
        "def tell(*_): raise RuntimeError('a worker was killed')\n"
        "class Slow:\n"
        "    def write(self, text): return len(text)\n"
        "    def flush(self): time.sleep(0.5)\n"
        "multiprocessing.Process(target=time.sleep, args=(100,), daemon=True).start()\n"
        "signal.signal(signal.SIGCHLD, tell)\n"
        "sys.stdout = Slow()\n" + UNFRAMED
    )
    done = record("--stop-after", "2", "--out", str(tmp_path / "out"), "--", sys.executable, str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the record ends" not in done.stderr
    assert [len(steps) for _, steps in read(tmp_path / "out")] == [3]
