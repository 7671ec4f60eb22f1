"""`--start-from`: what a run continues, and the one line that refuses the rest before anything starts."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.program import TrainState
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.start import read_start
from samestep.common.runtime.state_file import read_state, write_state
from samestep.common.workload.initial import empty_slots, init

ASKED = RunConfig(framework="numpy", strategy="oracle", dtype="float64", workload="digits-mlp+width=8", steps=8)
RUN = parse(ASKED)
PARAMS = init(RUN.workload.model, 0)
KERNEL = "layers/0/kernel"
SLOT = f"slots/momentum/{KERNEL}"
Arrays = dict[str, np.ndarray]


def arrays() -> Arrays:
    slots = {f"slots/momentum/{name}": value * 0 for name, value in PARAMS.items()}
    return {"step": np.int64(3), **{f"params/{name}": value for name, value in PARAMS.items()}, **slots}


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """The line that refuses a state, some of whose arrays are others, or (None) missing; from the parent and a worker."""

    def refused(changed: dict[str, object], **fields: object) -> str:
        np.savez(tmp_path / "state.npz", **{n: v for n, v in {**arrays(), **changed}.items() if v is not None})
        asked = dataclasses.replace(ASKED, start_from=str(tmp_path), **fields)
        with pytest.raises(ConfigError) as caught:
            check_launch(parse(asked), launch_of(asked))
        with pytest.raises(ConfigError) as in_worker:
            read_start(parse(asked), str(tmp_path))
        assert str(caught.value) == str(in_worker.value)
        return str(caught.value)

    return refused


def test_a_state_that_fits_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "state.npz", **arrays())
    assert read_start(RUN, str(tmp_path)).step == 3


def test_a_slot_has_the_shape_that_its_optimizer_keeps(tmp_path: Path) -> None:
    run = parse(dataclasses.replace(ASKED, optimizer="adafactor"))
    slots = empty_slots(run.optimizer, run.workload.model.params())
    assert slots["row_moment"][KERNEL].shape == (64, 1)
    write_state(tmp_path, TrainState(3, PARAMS, slots, {}))
    assert read_start(run, str(tmp_path)).step == 3
    slots["row_moment"][KERNEL] = np.zeros(SHAPE)
    write_state(tmp_path, TrainState(3, PARAMS, slots, {}))
    with pytest.raises(ConfigError, match=r"its row_moment of layers/0/kernel is \[64, 8\], that of .* is \[64, 1\]"):
        read_start(run, str(tmp_path))


SHAPE = PARAMS[KERNEL].shape


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({SLOT: None}, f"its momentum of {KERNEL} is not there"),
        ({f"local/0/residual/{KERNEL}": np.zeros(3)}, f"damaged: its residual of {KERNEL} is [3]"),
        ({f"local/1/sum_residual/{KERNEL}": np.full(SHAPE, np.inf)}, "holds numbers that are not finite"),
        ({SLOT: np.zeros(3)}, f"its momentum of {KERNEL} is [3], that of digits-mlp+width=8 is [64, 8]"),
        ({"slots/momentum/nobody": np.zeros(3)}, "its momentum of nobody is [3]"),
        ({f"params/{KERNEL}": None}, f"holds another model: its {KERNEL} is not there"),
        ({f"params/{KERNEL}": np.full(SHAPE, "a")}, "holds <U1, not real numbers"),
        ({f"params/{KERNEL}": PARAMS[KERNEL] + 1j}, "holds complex128, not real numbers"),
        ({f"params/{KERNEL}": np.zeros(SHAPE, int)}, f"params of {KERNEL} is int64; give real numbers"),
        ({f"params/{KERNEL}": np.full(SHAPE, np.nan)}, f"params of {KERNEL} holds numbers that are not finite"),
        (
            {f"params/{KERNEL}": np.full(SHAPE, -np.inf)},
            "not finite in float64; start from a run that has not diverged.",
        ),
        ({SLOT: np.full(SHAPE, np.nan)}, f"momentum of {KERNEL} holds numbers that are not finite"),
        ({"step": None}, "its step is None, not one whole number from 0"),
        ({"step": np.int64(-5)}, "its step is -5"),
        ({"step": np.float64(2.7)}, "its step is 2.7"),
        ({"step": np.float64(np.inf)}, "its step is inf"),
        ({"step": np.str_("3")}, "step holds <U1"),
        ({"step": np.array([3])}, "its step is [3]"),
        ({"step": np.uint64(2**63)}, "its step is 9223372036854775808"),
        ({"step": np.bool_(True)}, "its step is True"),
        ({"stp": np.int64(3)}, "stp is not part of a state"),
        ({"local/1000000000/x": np.zeros(1)}, "local/1000000000/x names no rank"),
        ({"local/-1/x": np.zeros(1)}, "local/-1/x names no rank"),
        ({"slots/zero/x": np.zeros(1)}, "but sgd continues from momentum"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_a_state_that_no_run_left_is_refused(
    refused: Callable[..., str], changed: dict[str, object], said: str
) -> None:
    assert said in refused(changed)


def test_a_number_beyond_float32_is_refused_where_float32_is_trained(refused: Callable[..., str]) -> None:
    large = {f"params/{KERNEL}": np.full(SHAPE, 1e300)}
    line = refused(large, framework="torch", strategy="single", dtype="float32")
    assert "not finite in float32" in line


def test_a_state_that_a_run_left_is_what_is_read(tmp_path: Path) -> None:
    slots = {"momentum": {name: value * 0 for name, value in PARAMS.items()}}
    write_state(tmp_path, TrainState(3, PARAMS, slots, {}, ({"residual": np.ones(2)}, {"residual": np.ones(2)})))
    state = read_state(tmp_path)
    assert [list(each) for each in state.local] == [["residual"], ["residual"]]
    assert read_start(RUN, str(tmp_path)).step == 3
