"""A server holds parameters, workers pull and push: every step each worker moves what it needs, both ways.

With S bytes on the server and N workers a step sends 2NS, half of it by the server: its link is the bottleneck. Of a
table from which each example looks up one row, only those rows are moved.

References:
    Li et al., OSDI 2014 (parameter server); Dean et al., NeurIPS 2012 (DistBelief, asynchronous).
"""

import math

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES, all_reduce_bytes, framing_bytes
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import Cut, ModelSpec
from common.workload.table import Workload

CALLS_BYTES, TENSOR_BYTES = 1500, 95
"""About what torch 2.13 sends in a step for each worker besides numbers: two calls with their replies; each tensor."""


def parameters_of(model: ModelSpec, cuts: tuple[Cut, ...]) -> list[str]:
    """The names of the parameters of some cuts."""
    return [name for name in model.params() if any(name.startswith(f"{cut.name}/") for cut in cuts)]


def served_cuts(model: ModelSpec) -> tuple[tuple[Cut, ...], tuple[Cut, ...]]:
    """What the server holds, and what stays on the workers.

    Returns:
        The cuts whose parameters are all tables with one row per example, and the others; if there are no such tables,
        everything and nothing.
    """
    params = model.params()
    cuts = model.cuts()
    tables = tuple(cut for cut in cuts if all(params[name].lookups == 1 for name in parameters_of(model, (cut,))))
    return (tables, tuple(cut for cut in cuts if cut not in tables)) if tables else (cuts, ())


def served(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Workers and, last, their server.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "tensorpipe", with gloo among the workers.
    """
    workers = Mesh.parse(config.mesh or "data=1").size
    item, model = ITEM_BYTES[config.dtype], workload.model
    slots = len(workload.optimizer(config).slots)
    params = model.params()
    on_server, on_workers = (
        [params[name] for name in parameters_of(model, cuts)] if cuts else [] for cuts in served_cuts(model)
    )
    held = sum(param.size for param in on_server) * item
    server = Footprint("server", held, held, held, slots * held, "law")
    batch = config.batch_size or 0
    if not on_workers:
        worker = Footprint("worker", held, held, held, 0, "law")
        calls = CALLS_BYTES + 2 * len(on_server) * TENSOR_BYTES
        return Ledger((*(worker,) * workers, server), (), workers * (2 * held + calls))

    rows = batch // workers * sum(param.shape[1] for param in on_server) * item
    ids = batch // workers * len(on_server) * 8
    dense = sum(param.size for param in on_workers) * item
    worker = Footprint("worker", dense, dense + rows, dense, slots * dense, "law")
    sent = workers * (2 * rows + 2 * ids + CALLS_BYTES + 4 * len(on_server) * TENSOR_BYTES)
    exchanges = ()
    if workers > 1:
        exchanges = (Exchange("all_reduce", 1, dense),)
        sent += workers * (all_reduce_bytes(dense, workers) + framing_bytes("all_reduce", workers, "gloo"))
    return Ledger((*(worker,) * workers, server), exchanges, math.ceil(sent))
