"""What each host of a run sends and receives in a step: within the host, and between hosts, beside their prediction."""

import dataclasses
from collections.abc import Mapping, Sequence

from samestep.common.ledger import Ledger
from samestep.common.runtime.measured import Usage
from samestep.common.runtime.records import HostBytes
from samestep.common.strategy import Run


def count_by_host(
    run: Run, hosts: Sequence[Mapping[str, str]], used: Sequence[Usage], ledger: Ledger, backend: str
) -> tuple[HostBytes, ...]:
    """Adds up what the processes of each of several hosts used.

    Args:
        run: What was trained.
        hosts: As `read_hosts` returns them.
        used: What the processes used.
        ledger: The prediction of the run.
        backend: What carried its exchanges.
    """
    roles = [spec.role for spec in run.strategy.topology(run)]
    routes = run.strategy.routes(run, ledger, backend)
    found = []
    for host in hosts:
        own = set(host["processes"].split())
        rows = [row for row in used if row.role in own]
        sent_away = sum(row.sent_away_bytes_per_step for row in rows)
        measured = HostBytes(
            host=host["host"],
            within_bytes=sum(row.sent_bytes_per_step for row in rows) - sent_away,
            sent_bytes=sent_away,
            received_bytes=sum(row.received_away_bytes_per_step for row in rows),
        )
        found.append(_with_prediction(measured, {number for number, role in enumerate(roles) if role in own}, routes))
    return tuple(found)


def _with_prediction(measured: HostBytes, own: set[int], routes: Mapping[tuple[int, int], float]) -> HostBytes:
    """Adds what the routes between processes say of a host that has some of them."""
    if not routes:
        return measured
    ways = {(True, True): 0.0, (True, False): 0.0, (False, True): 0.0, (False, False): 0.0}
    for (source, to), size in routes.items():
        ways[source in own, to in own] += size
    return dataclasses.replace(
        measured,
        predicted_within_bytes=ways[True, True],
        predicted_sent_bytes=ways[True, False],
        predicted_received_bytes=ways[False, True],
    )
