"""TensorFlow's parameter servers hold everything; a worker reads what an update needs and sends its gradients back.

With P the bytes of the parameters that are read whole and R those of the rows that a batch looks up in tables, an update
pulls P + R and pushes P + R; it runs on the servers, so no optimizer state travels. Serial, a step is one update on the
global batch; asynchronous, it is one on each worker's shard. The chief sends each batch to the worker that takes it.

References:
    Li et al. 2014, "Scaling distributed machine learning with the parameter server".
"""

from typing import Protocol

from samestep.common.evidence.costs.sizes import ID_BYTES, example_bytes, holder
from samestep.common.ledger import Exchange, Footprint, Ledger
from samestep.common.strategy import Run

_SERVER_BYTES, _PART_BYTES, _SLOT_BYTES, _TABLE_BYTES = 3000, 1300, 180, 350
"""About what tensorflow 2.21 sends in an update besides numbers: for each server; for each part of a variable, which is
asked for, answered, named in the call, locked and updated; for each slot of a part; for each part of a table."""


class ServerOptions(Protocol):
    """How many servers there are, and what a step is."""

    @property
    def parameter_servers(self) -> int: ...  # noqa: D102

    @property
    def consistency(self) -> str: ...  # noqa: D102


def cost(run: Run[ServerOptions], backend: str) -> Ledger:
    """Tables are cut by rows over the servers; all parts, in order, go to the servers in turn.

    Args:
        run: What is trained.
        backend: "grpc".

    Returns:
        The footprints of the chief, the workers and the servers; and what all workers pull and push in a step.
    """
    workers, servers = run.num_devices, run.options.parameter_servers
    updates = 1 if run.options.consistency == "serial" else workers
    model, item, batch = run.workload.model, run.item_bytes, run.batch_size
    params = model.params().values()
    tables = [param for param in params if param.lookups]
    parts = _parts(run)
    dense = sum(param.size for param in params if not param.lookups) * item
    looked_up = sum(param.lookups * param.shape[1] for param in tables) * item * batch
    moved = dense + looked_up // updates
    worker = Footprint(
        device="worker", params_bytes=0, params_peak_bytes=dense, gradients_bytes=moved, optimizer_bytes=0
    )
    footprints = (
        Footprint.uniform("chief", 0, 0),
        *(worker,) * workers,
        *(holder(run, sum(parts[server::servers]), "ps") for server in range(servers)),
    )
    exchanges = tuple(Exchange(name, updates * len(params), updates * moved) for name in ("pull", "push"))
    ids = sum(param.lookups for param in tables) * batch * ID_BYTES
    examples = batch * (example_bytes(model.inputs(), item) + example_bytes(model.targets(), item))
    calls = servers * _SERVER_BYTES + len(parts) * (_PART_BYTES + len(run.optimizer.slots) * _SLOT_BYTES)
    calls += sum(min(servers, param.shape[0]) for param in tables) * _TABLE_BYTES
    return Ledger(footprints, exchanges, updates * (2 * moved + calls) + ids + examples)


def _parts(run: Run[ServerOptions]) -> list[int]:
    """The elements of each part of a variable, in order."""
    parts = []
    for param in run.workload.model.params().values():
        shards = min(run.options.parameter_servers, param.shape[0]) if param.lookups else 1
        for shard in range(shards):
            rows = param.shape[0] // shards + (shard < param.shape[0] % shards)
            parts.append(rows * (param.size // param.shape[0]))
    return parts
