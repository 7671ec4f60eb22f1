"""Who of several silent processes is the one that the others wait for."""

import faulthandler
import tempfile

import pytest

from common.runtime.whereabouts import Place, crashed, only_one_elsewhere, place

ANSWER = """the last thing it said
Thread 0x00007f46f12fe6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f46f12fe6d0 (most recent call first):
  File "/env/lib/python3.11/threading.py", line 327 in wait
  File "/env/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f4714dc2b80 (most recent call first):
  File "/env/site-packages/torch/autograd/graph.py", line 870 in _engine_run_backward
  File "/repo/torch_impl/program.py", line 120 in gradients
  File "/repo/common/runtime/loop.py", line 140 in train
  File "/repo/common/runtime/worker.py", line 51 in main
  File "/repo/common/runtime/server.py", line 97 in _become_worker
"""
WAITS = Place("/env/site-packages/torch/autograd/graph.py", 870, "_engine_run_backward")
READS = Place("/repo/common/workload/data/dataset.py", 12, "load")


def test_the_working_threads_innermost_frame() -> None:
    assert place(ANSWER) == WAITS
    assert str(WAITS) == "graph.py:870 _engine_run_backward"


def test_what_python_writes_is_read() -> None:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        written = file.read()
    assert place(written) is None  # no worker
    as_a_worker = written.replace(__file__, "/repo/common/runtime/worker.py")
    assert place(as_a_worker).function == "test_what_python_writes_is_read"


def test_the_thread_that_crashed_need_not_be_the_workers() -> None:
    assert crashed(f"Segmentation fault\n\n{ANSWER}") == WAITS
    elsewhere = ANSWER.replace("common/runtime/worker.py", "threading.py")
    assert crashed(elsewhere) == WAITS
    assert crashed("Aborted\n\nThread 0x00007f46f12fe6c0 (most recent call first):\n  <no Python frame>\n") is None
    assert crashed("") is None


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ({0: WAITS, 1: READS}, 1),
        ({0: WAITS, 1: None}, 1),  # stopped: it cannot answer
        ({0: WAITS, 1: WAITS}, None),
        ({0: READS, 1: None, 2: WAITS}, None),
        ({0: READS}, 0),
    ],
)
def test_the_one_that_does_not_wait(places: dict[int, Place | None], named: int | None) -> None:
    assert only_one_elsewhere(places, "torch") == named
