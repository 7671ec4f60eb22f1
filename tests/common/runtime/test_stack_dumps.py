"""Stack dumps are read, and name which of several silent processes the others wait for."""

import faulthandler
import tempfile

import pytest

from samestep.common.runtime.stack_dumps import Frame, Stack, crash_frame, sole_straggler, waits, worker_stack

DUMP = """the last thing it said
Thread 0x00007f46f12fe6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f46f12fe6d0 (most recent call first):
  File "/env/lib/python3.11/threading.py", line 327 in wait
  File "/env/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f4714dc2b80 (most recent call first):
  File "/env/site-packages/torch/autograd/graph.py", line 870 in _engine_run_backward
  File "/repo/torch_impl/program.py", line 120 in gradients
  File "/repo/common/runtime/worker/loop.py", line 140 in train
  File "/repo/common/runtime/worker/worker.py", line 51 in main
  File "/repo/common/runtime/worker/fork_server.py", line 97 in _become_worker
"""
WAITS = Frame("/env/site-packages/torch/autograd/graph.py", 870, "_engine_run_backward")
READS = Frame("/repo/common/workload/data/dataset.py", 12, "load")


def test_the_working_threads_innermost_frame() -> None:
    assert worker_stack(DUMP)[0] == WAITS
    assert str(WAITS) == "graph.py:870 _engine_run_backward"


def test_what_python_writes_is_read() -> None:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        written = file.read()
    assert worker_stack(written) == ()  # no worker
    as_a_worker = written.replace(__file__, "/repo/common/runtime/worker/worker.py")
    assert worker_stack(as_a_worker)[0].function == "test_what_python_writes_is_read"


def test_the_thread_that_crashed_need_not_be_the_workers() -> None:
    assert crash_frame(f"Segmentation fault\n\n{DUMP}") == WAITS
    elsewhere = DUMP.replace("common/runtime/worker/worker.py", "threading.py")
    assert crash_frame(elsewhere) == WAITS
    assert crash_frame("Aborted\n\nThread 0x00007f46f12fe6c0 (most recent call first):\n  <no Python frame>\n") is None
    assert crash_frame("") is None


LOCK = Frame("/usr/lib/python3.11/threading.py", 327, "wait")
COPIES = Frame("/usr/lib/python3.11/copy.py", 128, "deepcopy")
ATTENDS = Frame("/repo/torch_impl/rpc/group.py", 70, "step")
MODEL = Frame("/repo/torch_impl/models/layers.py", 30, "forward")


@pytest.mark.parametrize(
    ("stack", "does"),
    [
        ((WAITS,), True),
        ((READS,), False),
        ((LOCK, ATTENDS), True),  # a served rank, for the calls of the others
        ((COPIES, WAITS), True),  # the framework, by way of Python's library
        ((COPIES, READS), False),
        ((MODEL, WAITS), False),  # the framework called something of ours, which hangs
        ((), False),
    ],
)
def test_a_process_that_waits(stack: Stack, does: bool) -> None:
    assert waits(stack, "torch") is does


@pytest.mark.parametrize(
    ("stacks", "named"),
    [
        ({0: (WAITS,), 1: (READS,)}, 1),
        ({0: (WAITS,), 1: ()}, 1),  # stopped: it cannot answer
        ({0: (WAITS,), 1: (WAITS,)}, None),
        ({0: (READS,), 1: (), 2: (WAITS,)}, 1),  # what does not answer outranks what is busy
        ({0: (), 1: (), 2: (READS,)}, None),
        ({0: (LOCK, ATTENDS), 1: (READS,)}, 1),
        ({0: (READS,)}, 0),
    ],
)
def test_the_one_that_does_not_wait(stacks: dict[int, Stack], named: int | None) -> None:
    assert sole_straggler(stacks, "torch") == named
