"""Parameters that a step leaves without a gradient: every row leaves them as one device does."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.directory import read_error, write_error
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.state_file import read_state
from samestep.common.workload.declaration import Model
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer
from samestep.torch_impl.describing.reach import always_called, find_reach
from samestep.torch_impl.models.user_model import build_declared
from samestep.torch_impl.optimizers import build_optimizer, leave
from tests.cells import slow
from tests.conftest import RunCell
from tests.own import odd_zoo

pytestmark = pytest.mark.torch
ZOO = Path(odd_zoo.__file__)
DATA = ZOO.with_name("torch_zoo.py")


def odd(model: str) -> dict[str, str]:
    return {"model": f"{ZOO}:{model}", "data": f"{DATA}:{'tokens' if model == 'EXPERTS' else 'points'}"}


class Net(nn.Module):
    """Two layers, and a forward pass that is given."""

    def __init__(self, forward: Callable[["Net", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)
        self._forward = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(self, x)


@pytest.mark.parametrize(
    ("forward", "unused", "branches"),
    [
        (lambda net, x: net.other(net.one(x)), 0, False),
        (lambda net, x: net.one(x), 2, False),
        (lambda net, x: net.other(net.one(x).detach()), 2, False),
        (lambda net, x: net.one(x[torch.tensor([1, 0])]) + net.other(x), 0, False),
        (lambda net, x: torch.where(x > 0, net.one(x), net.other(x)), 0, False),
        (lambda net, x: net.one(x) if x.mean() > 9 else net.other(x), 2, True),
        (lambda net, x: net.one(x) + net.other(x[x[:, 0] > -9]), 0, True),
        (lambda net, x: net.one(x) + net.other(x) * len((x > 0).nonzero()), 0, True),
        (lambda net, x: (net.one if x.tolist()[0][0] > 9 else net.other)(x), 2, True),
        (lambda net, x: (net.one if x.numpy()[0, 0] > 9 else net.other)(x), 2, True),
    ],
)
def test_what_a_backward_pass_reaches_is_found_out(
    forward: Callable[[Net, torch.Tensor], torch.Tensor], unused: int, branches: bool
) -> None:
    net = Net(forward).double()
    found = find_reach(net, torch.randn(2, 6, dtype=torch.float64), False, "net.py")
    assert (len(found.unused), found.branches) == (unused, branches)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_parameter_that_a_model_returns_is_read_by_its_loss() -> None:
    """Its gradient is looked at before all are set to zero."""
    net = odd_zoo.uncertain().double()
    x = torch.randn(2, 6, dtype=torch.float64)
    found = find_reach(net, x, False, "net.py", lambda outputs: odd_zoo.by_doubts(outputs, x[:, :2]))
    assert (found.unread, found.unused) == ((), ())


@pytest.mark.parametrize("row", ["ddp", "fsdp", *slow("zero1", "zero2")])
def test_a_parameter_that_a_model_returns_is_trained(run_cell: RunCell, row: str, tmp_path: Path) -> None:
    fields = {"dtype": "float64", "steps": 3, "keep_state": True, **odd("UNCERTAIN")}
    result = run_cell(f"torch:{row}", "digits-mlp", devices=2, out=str(tmp_path / "run"), **fields)
    assert result.parity.passed, result.parity.reason
    assert read_state(tmp_path / "run").params["doubts"].all()


def test_layers_of_torch_do_not_look_at_numbers() -> None:
    """Otherwise DDP would look for unused parameters in every model."""
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8)]
    assert not find_reach(nn.Sequential(*layers).double(), x, False, "net.py").branches
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double()
    assert not find_reach(encoder, torch.randn(2, 5, 8, dtype=torch.float64), False, "net.py").branches


class Routed(nn.Module):
    """A layer for all examples, and two for some."""

    def __init__(self, takes_nothing: bool) -> None:
        super().__init__()
        self.every = nn.Linear(6, 6)
        self.some = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self._takes_nothing = takes_nothing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (len(x) or self._takes_nothing):
            raise ValueError("no examples")
        x = self.every(x)
        rows = x[:, 0] > 0
        if rows.any():
            x = x.masked_scatter(rows[:, None], self.some[0](x[rows]))
        return x + self.some[1](x) * rows[:, None] if rows.any() else x


@pytest.mark.parametrize("takes_nothing", [True, False])
def test_what_is_not_always_called_is_no_block(takes_nothing: bool) -> None:
    """A rank without such examples would leave the others waiting, or hand them another block."""
    torch.manual_seed(0)
    examples = np.random.default_rng(0).normal(size=(16, 6))
    asked = ["every", "some.0", "some.1", "some"]
    assert always_called(Routed(takes_nothing).double(), asked, examples) == ["every"]


PIPELINES = "hybrid+mesh=pipe=2,data=2+microbatches=2"
SPREAD = f"{PIPELINES}+shard_optimizer=true"
CELLS = ["ddp+accumulation_steps=2", "zero1", "fsdp", "rpc", PIPELINES]
OTHERS = [
    "hybrid+mesh=pipe=2,shard=2+microbatches=2",
    "c10d",
    "dp",
    "zero2",
    "rpc_parameter_server",
    "mp",
    "pp+microbatches=2",
    "fsdp+mesh=data=2,shard=2",
]
LONGER = ["ddp", "fsdp+accumulation_steps=2", "c10d+accumulation_steps=2", SPREAD]


@pytest.mark.parametrize("optimizer", ["adamw", *slow("sgd")])
@pytest.mark.parametrize("cell", [*CELLS, *slow(*OTHERS, *LONGER)])
def test_an_expert_that_is_used_now_and_then(run_cell: RunCell, cell: str, optimizer: str) -> None:
    """It neither decays nor counts an update while no example of the batch is sent to it, on whatever rank."""
    devices = {} if "mesh" in cell else {"devices": 2}
    result = run_cell(
        f"torch:{cell}",
        "digits-mlp",
        dtype="float64",
        batch_size=4,
        steps=12,
        optimizer=optimizer,
        **devices,
        **odd("SOMETIMES"),
    )
    assert result.parity.passed, result.parity.reason
    if "rpc" not in cell:
        sent = sum(row.sent_bytes_per_step for row in result.processes)
        assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)


@pytest.mark.parametrize("cell", ["single", *slow("ddp", "zero1", "fsdp")])
def test_what_no_step_uses_has_no_optimizer_state(run_cell: RunCell, cell: str) -> None:
    """As in torch's own loop: the moments of AdamW come with the first gradient."""
    devices = 1 if cell == "single" else 2
    result = run_cell(f"torch:{cell}", "digits-mlp", devices=devices, optimizer="adamw", steps=3, **odd("UNUSED"))
    assert result.parity.passed, result.parity.reason
    used = 6 * 16 + 16 + 16 * 2 + 2
    kept = [row.optimizer_bytes for row in result.processes]
    assert kept == [each.optimizer_bytes for each in result.predicted.footprints for _ in range(each.count)]
    assert sum(kept) == 2 * used * 4 * (devices if cell == "ddp" else 1)


@pytest.mark.parametrize("cell", ["fsdp", *slow("ddp", "zero2", "fsdp+mesh=data=2,shard=2")])
def test_a_list_of_experts(run_cell: RunCell, cell: str) -> None:
    """Gathered one by one they ended in a mismatch of collectives, which aborts a process."""
    devices = {} if "mesh" in cell else {"devices": 2}
    fields = {"dtype": "float64", "batch_size": 4, "steps": 6, **devices, **odd("EXPERTS")}
    result = run_cell(f"torch:{cell}", "digits-mlp", **fields)
    assert result.parity.passed, result.parity.reason


def test_what_updates_everything_together_refuses_it(launcher: Launcher) -> None:
    fields = {"devices": 2, "batch_size": 48, "dtype": "float32", "optimizer": "adamw", **odd("UNUSED")}
    with pytest.raises(
        ConfigError, match=r"may leave some without a gradient \(never/kernel, ...\).*choose torch:zero1"
    ):
        parse(launcher.describe(Cell.parse("torch:deepspeed").apply_to(RunConfig(**fields))))
    parse(
        launcher.describe(Cell.parse("torch:deepspeed").apply_to(RunConfig(**{**fields, "optimizer": "sgd"})))
    )  # zeros do nothing


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: nn.Sequential(nn.LazyLinear(3)),
            "the LazyLinear `0` has a weight whose size is unknown.*write nn.Linear",
        ),
        (lambda: nn.LazyConv2d(3, 3), "the LazyConv2d the model itself has a weight.*write nn.Conv2d"),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.LazyBatchNorm1d()), "the LazyBatchNorm1d `1` has a"),
        (
            lambda: with_parameter(nn.UninitializedParameter()),
            "the Identity the model itself has a held.*give it its shape",
        ),
        (lambda: with_parameter(nn.Parameter(torch.eye(3).to_sparse())), "a held in the layout torch.sparse_coo"),
    ],
)
def test_what_has_no_size_or_is_sparse_is_refused(build: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_declared(Model(torch=build), "net.py")


def with_parameter(parameter: nn.Parameter) -> nn.Module:
    module = nn.Identity()
    module.register_parameter("held", parameter)
    return module


class Looked(nn.Module):
    """A table whose rows are looked up by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(5, 2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(ids, self.table, sparse=True)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Embedding(5, 2, sparse=True), "the Embedding `` gets a sparse gradient.*write sparse=False"),
        (nn.Sequential(nn.EmbeddingBag(5, 2, sparse=True)), "the EmbeddingBag `0` gets.*write sparse=False"),
        (Looked(), "the parameter table gets.*look it up with sparse=False"),
    ],
)
def test_a_sparse_gradient_is_refused(module: nn.Module, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_reach(module, torch.tensor([[1, 2], [0, 4]]), False, "net.py")


@pytest.mark.parametrize("cell", ["zero1", "fsdp", *slow("ddp", "zero2")])
def test_an_optimizer_of_groups(run_cell: RunCell, cell: str) -> None:
    result = run_cell(f"torch:{cell}", "digits-mlp", devices=2, dtype="float64", optimizer="own", **odd("GROUPS"))
    assert result.parity.passed, result.parity.reason
    if cell == "zero1":
        measured = [row.optimizer_bytes for row in result.processes]
        each = [row.optimizer_bytes for row in result.predicted.footprints for _ in range(row.count)]
        assert measured == each


def test_an_optimizer_keeps_the_groups_of_a_rank() -> None:
    one, other = (nn.Parameter(torch.ones(2)) for _ in range(2))
    made = torch.optim.SGD([{"params": [one]}, {"params": [other], "weight_decay": 0.5}], lr=1.0)
    made.state[one]["kept"] = torch.ones(2)
    left = leave(made, [{"params": []}, {"params": [other]}])
    assert [group["params"] for group in left.param_groups] == [[], [other]]
    assert left.param_groups[1]["weight_decay"] == 0.5 and not left.state


def test_an_optimizer_that_fails_in_a_row_fails_the_row() -> None:
    """What a function says of the parameters of a stage is no reason why the row would not be possible."""
    source = f"{ZOO}:WHOLE"
    with pytest.raises(
        WorkerFailed, match=r"the function given as optimizer failed: AssertionError.*len\(params\) == 8"
    ):
        build_optimizer(UserOptimizer(0.0, source), [nn.Parameter(torch.ones(2))])


def test_an_error_without_words_says_where(tmp_path: Path) -> None:
    try:
        assert tmp_path is None
    except AssertionError as error:
        write_error(tmp_path, "rank-0", AssertionError().with_traceback(error.__traceback__))
    left = read_error(tmp_path)
    assert left is not None and "AssertionError: test_without_gradients.py:" in str(left[1])
    assert "`assert tmp_path is None`" in str(left[1])


@pytest.mark.parametrize("cell", ["zero1", *slow("single", "fsdp", "rpc", "pp+microbatches=2")])
def test_a_run_that_continues_knows_how_often_each_was_updated(run_cell: RunCell, cell: str, tmp_path: Path) -> None:
    """AdamW corrects its bias by that; the reference's curve is continued by later runs as well."""
    fields = {"dtype": "float64", "batch_size": 4, "optimizer": "adamw", "keep_state": True, **odd("SOMETIMES")}
    fields |= {} if cell == "single" else {"devices": 2}
    run_cell(f"torch:{cell}", "digits-mlp", steps=5, out=str(tmp_path / "begun"), **fields)
    counts = read_state(tmp_path / "begun").counts
    assert counts["never/kernel"] == 0 < counts["expert/kernel"] < counts["out/kernel"] == 5
    whole = run_cell(f"torch:{cell}", "digits-mlp", steps=12, **fields)
    rest = run_cell(f"torch:{cell}", "digits-mlp", steps=12, start_from=str(tmp_path / "begun"), **fields)
    assert whole.parity.passed is not False, whole.parity.reason
    assert rest.losses == pytest.approx(whole.losses[5:], rel=1e-14)


@pytest.mark.parametrize("cell", [SPREAD, *slow("zero1+mesh=data=2", "pp+mesh=pipe=2+microbatches=2")])
def test_what_nobody_updates_is_kept_by_one_rank_of_those_that_have_it(
    run_cell: RunCell, cell: str, tmp_path: Path
) -> None:
    """The frozen parameter is in the last stage, which ranks have that do not include the first of all."""
    fields = {"dtype": "float64", "batch_size": 4, "optimizer": "adamw", "keep_state": True, **odd("IN_PART")}
    result = run_cell(f"torch:{cell}", "digits-mlp", steps=6, out=str(tmp_path / "run"), **fields)
    assert result.parity.passed, result.parity.reason
    measured, predicted = (
        [row.optimizer_bytes for row in rows] for rows in (result.processes, result.predicted.devices())
    )
    never = (16 * 16, 16)  # may be used as the model branches, so that its moments are predicted; no step of these does
    lacking = [most - held for most, held in zip(predicted, measured, strict=True)]
    assert sum(lacking) == 2 * 8 * sum(never)
    assert {*lacking} <= {0, *(2 * 8 * size for size in never), 2 * 8 * sum(never)}
    counts = read_state(tmp_path / "run").counts
    assert counts["out/bias"] == counts["never/kernel"] == 0 < counts["expert/kernel"] < counts["out/kernel"] == 6
