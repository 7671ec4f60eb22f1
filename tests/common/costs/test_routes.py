"""Who sends to whom, as predicted: all of it together is what is predicted to be sent, and it goes where rings go."""

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig
from samestep.common.run import parse

EXCHANGE = ("c10d", "ddp", "zero2", "fsdp", "mp", "pp", "tp", "hybrid")


def routes_of(cell: str, **asked: object) -> tuple[dict[tuple[int, int], float], float]:
    """Its routes, and what all processes send."""
    values = {"workload": "digits-mlp+width=32", "devices": 4, "batch_size": 48, **asked}
    run = parse(Cell.parse(cell).apply_to(RunConfig(**values)))
    ledger = run.strategy.cost(run, run.strategy.backend)
    return dict(run.strategy.routes(run, ledger, run.strategy.backend)), ledger.sent_bytes_per_step


@pytest.mark.parametrize(
    "cell",
    [
        *(f"torch:{name}" for name in EXCHANGE),
        "torch:c10d+ring=true",
        "torch:zero1",
        "torch:ddp+compress=int8",
        "torch:hybrid+mesh=pipe=2,data=2",
        "torch:hybrid+mesh=data=2,tensor=2+clip_norm=1",
        "torch:hybrid+mesh=pipe=2,data=2+shard_optimizer=true",
        "torch:fsdp+mesh=data=2,shard=2",
        "tf:multi_worker_mirrored",
        "tf:multi_worker_mirrored+compress=int8",
        "torch:ddp+local_steps=4",
        "tf:multi_worker_mirrored+local_steps=4",
        "tf:dtensor+clients=2",
        "tf:dtensor+clients=2+mesh=data=2,tensor=2",
        "tf:dtensor+clients=4+mesh=data=2,tensor=2",
        "torch:rpc",
        "torch:rpc+accumulation_steps=2",
        "torch:rpc_parameter_server",
        "tf:parameter_server",
        "tf:parameter_server+parameter_servers=3+consistency=async",
    ],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_routes_are_all_that_is_sent(cell: str, optimizer: str) -> None:
    routes, sent = routes_of(cell, optimizer=optimizer)
    assert sent and sum(routes.values()) == pytest.approx(sent, rel=1e-9)
    driver = {(0, 0)} if cell.startswith("torch:rpc") else set()  # which calls itself as it calls the others
    assert {pair for pair in routes if pair[0] == pair[1]} <= driver


def test_a_ring_crosses_to_another_host_once_each_way() -> None:
    routes, sent = routes_of("torch:ddp")
    assert routes == {(n, (n + 1) % 4): pytest.approx(sent / 4) for n in range(4)}


LONG = {"workload": "prose-gpt+layers=2+width=32+context=16", "batch_size": 48, "devices": None}


@pytest.mark.parametrize(
    ("cell", "mesh", "gradients"),
    [("torch:cp", "data=2,context=2", set()), ("torch:hybrid", "pipe=2,context=2,tensor=2", {(0, 4), (4, 0)})],
)
def test_keys_and_values_go_around_each_ring_of_positions(
    cell: str, mesh: str, gradients: set[tuple[int, int]]
) -> None:
    ring, sent = routes_of(f"{cell}+attention_exchange=ring", mesh=mesh, **LONG)
    heads, _ = routes_of(cell, mesh=mesh, **LONG)
    assert sum(ring.values()) == pytest.approx(sent, rel=1e-9)
    apart = 2 if "tensor" in mesh else 1
    assert {pair for pair in ring if ring[pair] > heads.get(pair, 0.0)} == {
        (rank, rank ^ apart) for rank in range(8 if gradients else 4)
    }


def test_a_broadcast_goes_down_a_tree() -> None:
    routes, sent = routes_of("torch:zero1", devices=2)
    assert routes.keys() == {(0, 1), (1, 0)}
    assert sum(routes.values()) == pytest.approx(sent)
    batch_norm, sent = routes_of("torch:ddp", workload="digits-mlp+width=32+norm=batch", batch_norm="local")
    plain, _ = routes_of("torch:ddp")
    assert batch_norm.keys() - plain.keys() == {(0, 2), (1, 3)} and batch_norm[0, 1] > batch_norm[1, 2]
    assert sum(batch_norm.values()) == pytest.approx(sent)


def test_calls_and_servers_have_their_own() -> None:
    rpc, _ = routes_of("torch:rpc")
    assert {pair for pair in rpc if 0 not in pair} == {(1, 2), (2, 1), (2, 3), (3, 2)}
    assert rpc[1, 2] > 2 * rpc[0, 2], "activations go from stage to stage, and only calls elsewhere"
    servers, _ = routes_of("tf:parameter_server", devices=2)
    assert servers[0, 1] == servers[0, 2] > servers[1, 0], "the chief sends batches"
    assert servers[1, 3] == servers[2, 3], "each worker is taken to have half of the updates"
    tables, _ = routes_of("torch:rpc_parameter_server", workload="flights-ranker")
    assert {(n, (n + 1) % 4) for n in range(4)} <= tables.keys(), "what workers keep is summed around a ring"
    assert not routes_of("tf:mirrored")[0]


def test_a_server_that_holds_all_of_a_table_gets_a_vector_of_ids_once() -> None:
    """Of each table, an example sends an id, and the row of its gradient."""
    sizes = {"workload": "synthetic-ranker+hash_buckets=0", "devices": 2}
    few, many = (routes_of("tf:parameter_server", batch_size=size, **sizes)[0] for size in (48, 96))
    tables, row_bytes, id_bytes = 4, 8 * 4, 8
    assert many[1, 3] - few[1, 3] == pytest.approx(tables * (row_bytes + id_bytes) * 24)


def test_rings_along_an_axis_stay_where_their_devices_are() -> None:
    """Of 2 x 2 devices on two processes, those along `tensor` share a process, and those along `data` do not."""
    both, _ = routes_of("tf:dtensor+clients=2+mesh=data=2,tensor=2")
    four, _ = routes_of("tf:dtensor+clients=4+mesh=data=2,tensor=2")
    assert both.keys() == {(0, 1), (1, 0)}
    assert {(0, 1), (0, 2)} <= four.keys() and (1, 2) not in four and (0, 3) in four
