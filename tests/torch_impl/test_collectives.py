"""No operator that may exchange anything is left out of the ledger: it is counted, known to move nothing, or refused."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.tensor

from samestep.common.errors import Unavailable
from samestep.common.ledger import Send
from samestep.torch_impl.observing.collectives import (
    COLLECTIVES,
    MOVE_NOTHING,
    NAMESPACES,
    collective_of,
    is_transfer,
    may_exchange,
)
from samestep.torch_impl.observing.exchanges import Observer
from samestep.torch_impl.observing.recorder import SendRecorder

pytestmark = pytest.mark.torch

WORDS = ("reduce", "gather", "scatter", "broadcast", "all_to_all", "alltoall", "send", "p2p")
"""What the name of an operator has in it that hands something over."""
INPUTS = {"input", "inputs", "input_tensor", "input_tensors", "input_list", "tensors", "tensor"}
"""What torch calls the argument that is handed over; what is filled, it calls outputs."""


def operators() -> Iterator[torch._ops.OpOverload]:
    """Everything that the installed torch registers and that may exchange, whichever namespace it is in."""
    for schema in torch._C._jit_get_all_schemas():
        if may_exchange(schema):
            namespace, _, name = schema.name.partition("::")
            yield getattr(getattr(getattr(torch.ops, namespace), name), schema.overload_name or "default")


def test_every_operator_of_the_installed_torch_is_counted_or_refused_by_its_name() -> None:
    found = {each._schema.name: each for each in operators()}
    assert len(found) > 80
    assert {name.partition("::")[0] for name in found} >= {*NAMESPACES}
    if torch.__version__.startswith("2.13."):
        assert found.keys() >= {*COLLECTIVES, *MOVE_NOTHING}, "a table names what torch does not have"
    for name, operator in found.items():
        if name in COLLECTIVES or name in MOVE_NOTHING:
            assert (collective_of(operator) is None) == (name in MOVE_NOTHING)
            assert is_transfer(name)
        else:
            with pytest.raises(Unavailable, match=f"a step calls {name} of torch"):
                collective_of(operator)


def test_the_operators_of_c10d_are_all_counted() -> None:
    left = {each._schema.name for each in operators()} - {*COLLECTIVES, *MOVE_NOTHING}
    counted = {name for name in left if name.startswith(("c10d::", "_c10d_functional"))}
    assert counted == {"_c10d_functional::batch_p2p_ops"}, "which sends and receives in one call"
    assert {name.partition("::")[0] for name in left - counted} == {"c10d_functional", "symm_mem"}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_bytes_are_those_of_the_argument_that_torch_hands_over(name: str) -> None:
    collective, (operator,) = COLLECTIVES[name], [each for each in operators() if each._schema.name == name]
    arguments = operator._schema.arguments
    assert arguments[collective.handed_over].name in INPUTS
    assert arguments[collective.group].name in {"process_group", "group_name"}
    has_peer = collective.operation in ("send", "broadcast")
    assert (collective.peer is not None) == has_peer
    if collective.peer is not None:
        assert arguments[collective.peer].name in {"dst", "src", "root_rank"}


def test_what_moves_nothing_has_no_name_of_an_exchange_and_a_reason() -> None:
    assert {name for name in MOVE_NOTHING if any(word in name.partition("::")[2] for word in WORDS)} == set()
    assert all(MOVE_NOTHING.values())


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sends(take: Callable[[], object]) -> tuple[Send, ...]:
    """What is recorded of a step."""
    recorder = SendRecorder("all")
    recorder.start()
    with Observer(recorder):
        take()
    return recorder.stop()


def exchanged_both_ways() -> None:
    x = torch.ones(4, 3, requires_grad=True)
    functional.all_to_all_single_autograd(x, [4], [4], dist.group.WORLD).sum().backward()


def awaited(tensors: Sequence[torch.Tensor]) -> None:
    """Waits for what functions return at once: torch otherwise warns of it when the process ends."""
    for each in tensors:
        functional.wait_tensor(each)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("take", "told"),
    [
        (lambda: dist.reduce(torch.ones(3), 0), ["reduce 12"]),
        (lambda: dist.gather(torch.ones(3), [torch.ones(3)]), ["gather 12"]),
        (lambda: dist.scatter(torch.ones(3), [torch.ones(3)]), ["scatter 12"]),
        (lambda: dist.all_to_all([torch.ones(3)], [torch.ones(3)]), ["all_to_all 12"]),
        (lambda: dist.all_reduce_coalesced([torch.ones(3), torch.ones(2)]), ["all_reduce 20"]),
        (
            lambda: awaited(functional.all_reduce_coalesced([torch.ones(3), torch.ones(2)], "sum", dist.group.WORLD)),
            ["all_reduce 20"],
        ),
        (lambda: awaited([functional.broadcast(torch.ones(3), 0, dist.group.WORLD)]), ["broadcast 12"]),
        (
            lambda: awaited([functional.all_to_all_single(torch.ones(3), [3], [3], dist.group.WORLD)]),
            ["all_to_all 12"],
        ),
        (exchanged_both_ways, ["all_to_all 48", "all_to_all 48"]),
        (lambda: dist.barrier(), []),
    ],
)
def test_what_was_missing_before_is_recorded(alone: None, take: Callable[[], object], told: list[str]) -> None:
    found = sends(take)
    assert [f"{each.operation} {each.bytes // each.count}" for each in found for _ in range(each.count)] == told


def test_an_operator_that_torch_does_not_have_yet_is_refused(alone: None) -> None:
    library = torch.library.Library("nextyear", "FRAGMENT")
    library.define("swap(Tensor given, str group_name) -> Tensor")
    library.impl("swap", lambda given, group_name: given.clone(), "CPU")
    with pytest.raises(Unavailable, match="nextyear::swap of torch"):
        sends(lambda: torch.ops.nextyear.swap(torch.ones(2), "0"))
