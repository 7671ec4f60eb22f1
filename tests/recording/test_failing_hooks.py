"""A hook of the recorder that is interrupted: what is the script's reaches the script, what is ours ends the record alone."""

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from samestep.common.steps.recording import Recorder, RecordOptions
from tests.recording.records import SCRIPTS, read, record


class _Late(Exception):
    pass


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Late


class _Timer:
    def raise_late(self, number: int, frame: FrameType | None) -> None:
        raise _Late

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise _Late


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[Callable[[object], str]]:
    """Runs a hook that a signal interrupts, under a handler; returns what is noted."""
    before = signal.getsignal(signal.SIGUSR1)

    def run(handler: object) -> str:
        signal.signal(signal.SIGUSR1, handler)  # type: ignore[arg-type]
        notes = tmp_path / "notes"
        notes.touch()
        recorder = Recorder(RecordOptions("", notes=str(notes)), "torch")
        try:
            recorder.guarded(lambda: signal.raise_signal(signal.SIGUSR1))()
        finally:
            assert recorder.is_ended
        return notes.read_text()

    yield run
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "handler",
    [_raise, _Timer(), _Timer().raise_late, functools.partial(_raise)],
    ids=["function", "object", "method", "partial"],
)
def test_what_a_handler_of_the_script_raises_reaches_the_script(
    ended: Callable[[object], str], handler: object
) -> None:
    with pytest.raises(_Late):
        ended(handler)


def test_ctrl_c_reaches_the_script_and_ends_the_record(ended: Callable[[object], str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        ended(signal.default_int_handler)


def test_an_error_of_ours_reaches_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(RecordOptions(str(tmp_path)), "torch")
    recorder.guarded(lambda: 1 / 0)()
    assert (
        recorder.is_ended
        and "the record ends at step 0: ZeroDivisionError in test_failing_hooks.py:" in capsys.readouterr().err
    )


@pytest.mark.torch
def test_a_timeout_within_a_hook_of_torch_is_the_scripts(tmp_path: Path) -> None:
    script = tmp_path / "timed.py"
    late = "import signal, samestep.common.steps.record as record, samestep.common.steps.recording as recording\n"
    late += "def late(*_): raise TimeoutError('late')\nsignal.signal(signal.SIGUSR1, late)\n"
    late += "write = recording.step_frame\n"
    late += "def step_frame(step, sums): step.number == 3 and signal.raise_signal(signal.SIGUSR1); return write(step, sums)\n"
    late += "recording.step_frame = step_frame\n"
    script.write_text((SCRIPTS / "plain.py").read_text().replace("torch.manual_seed", f"{late}torch.manual_seed", 1))
    done = record("--out", str(tmp_path / "out"), "--", sys.executable, str(script))
    assert done.returncode == 1 and "TimeoutError: late" in done.stderr, done.stderr
    assert "the record ends at step 3: TimeoutError was raised while it was written" in done.stderr
    assert len(read(tmp_path / "out")[0][1]) == 4


@pytest.mark.parametrize("gone", ["sys.stdout.close()", "sys.stdout = None"])
def test_the_last_step_that_is_wanted_may_find_no_stdout(tmp_path: Path, gone: str) -> None:
    script = tmp_path / "silent.py"
    script.write_text(f"import sys\n{gone}\n{(SCRIPTS / 'unframed.py').read_text()}")
    done = record("--out", str(tmp_path / "out"), "--stop-after", "2", "--", sys.executable, str(script))
    assert done.returncode == 0 and done.stderr.startswith("samestep: recorded 2 steps"), done.stderr
