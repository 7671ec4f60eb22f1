"""Networks that follow one of Keras on PyTorch are compared, as on TensorFlow: test_keras_strangers.py has those."""

from pathlib import Path

import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import FOLLOWER
from tests.recording.records import SCRIPTS, run_forked
from tests.sharing import made_once

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
PAIRS = [
    ("averages", "faster", "follows_otherwise", "(follower.copy/dense_2/kernel, "),
    ("averages", "restarted", "follows_otherwise", "(follower2.sgd/model_dense_kernel_average, "),
    ("averages", "other", "same", "of a network that no optimizer updates start from other weights"),
    ("held", "faster", "follows_otherwise", "moves 2.000 times as far in B"),
    ("remade", "once", "same", ""),
    ("remade", "lost", "optimizer_state_lost", "step 4, update"),
    ("tuned", "frozen", "statistics_stand_still", "stand still in B"),
    ("tuned zeros", "frozen", "statistics_stand_still", "the loss is the same only because of zeros in"),
    ("tuned plain", "frozen", "missing_gradients", "get gradients in A alone: frozen, detached"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = {kind for kind, *_ in PAIRS} | {f"{kind} {word}" for kind, word, *_ in PAIRS}

    def make(out: Path) -> None:
        script = str(SCRIPTS / "keras_teachers.py")
        for each in lines:
            (out / each).mkdir(parents=True)
        run_forked("keras on torch", [(script, each.split(), {"out": str(out / each)}, 1) for each in sorted(lines)])

    return made_once(tmp_path_factory, "records-of-keras-teachers", make)


@pytest.mark.parametrize(("kind", "word", "expected", "said"), PAIRS)
def test_what_follows_is_compared(folder: Path, kind: str, word: str, expected: str, said: str) -> None:
    found = judge(read_run(folder / kind), read_run(folder / f"{kind} {word}"))
    assert ([each.name for each in found.causes] or [found.kind]) == [expected], found.headline
    assert said in " ".join([found.headline, *found.notes])


@pytest.mark.parametrize(("kind", "networks"), [("averages", 2), ("held", 1)])
def test_each_network_is_recorded_once(folder: Path, kind: str, networks: int) -> None:
    tensors = read_run(folder / kind).tensors
    found = {each.name.partition(".")[0]: each.name for each in tensors if each.role == FOLLOWER}
    assert len(found) == networks
    assert sum(each.role != FOLLOWER for each in tensors) == 8


def test_what_stands_still_in_a_gets_gradients_in_b_alone(folder: Path) -> None:
    found = judge(read_run(folder / "tuned frozen"), read_run(folder / "tuned"))
    assert "stand still in A" in found.headline
    assert "get gradients in the other run alone" in found.headline
