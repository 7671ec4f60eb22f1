"""A server holds parameters, workers pull and push: every step each worker moves what it needs, both ways.

With S bytes on the server and N workers a step sends 2NS, half of it by the server: its link is the bottleneck. Of a
table from which each example looks up one row, only those rows are moved.

References:
    Li et al., OSDI 2014 (parameter server); Dean et al., NeurIPS 2012 (DistBelief, asynchronous).
"""

import dataclasses
import math

from samestep.common.evidence.costs.collectives import sent_bytes
from samestep.common.evidence.costs.sizes import ID_BYTES, holder
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import parameters_of
from samestep.common.workload.pipeline import server_segments

_CALLS_BYTES, _TENSOR_BYTES = 1500, 95
"""About what torch 2.13 sends in a step for each worker besides numbers: two calls with their replies; each tensor."""


def cost(run: Run, backend: str) -> Ledger:
    """Workers and, last, their server.

    Args:
        run: What is trained.
        backend: "tensorpipe", with gloo among the workers.

    Returns:
        One footprint per process, and what the workers exchange among each other.
    """
    workers, model = run.num_devices, run.workload.model
    served, kept = (list(parameters_of(model, *segments).values()) for segments in server_segments(model))
    server = holder(run, sum(param.size for param in served), "server")
    if not kept:
        worker = dataclasses.replace(server, device="worker", optimizer_bytes=0)
        calls = _CALLS_BYTES + 2 * len(served) * _TENSOR_BYTES
        return Ledger((*(worker,) * workers, server), (), workers * (2 * server.params_bytes + calls))

    examples = run.batch_size // workers
    rows = examples * sum(param.shape[1] for param in served) * run.item_bytes
    ids = examples * len(served) * ID_BYTES
    worker = holder(run, sum(param.size for param in kept), "worker")
    worker = dataclasses.replace(worker, params_peak_bytes=worker.params_bytes + rows)
    sent: float = workers * (2 * rows + 2 * ids + _CALLS_BYTES + 4 * len(served) * _TENSOR_BYTES)
    reduced = Exchange("all_reduce", 1, worker.params_bytes)
    sent += workers * sent_bytes(reduced, workers, "gloo")
    return Ledger((*(worker,) * workers, server), (reduced,) if workers > 1 else (), math.ceil(sent))
