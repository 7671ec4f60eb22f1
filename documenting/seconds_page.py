"""The tables of docs/seconds.md: errors of predicted seconds, and the constants behind them."""

from samestep.common.errors import percent
from samestep.common.seconds.machine import RATES, load_machine
from samestep.common.seconds.validation import CLUSTER, SERVER, carried_rows, extrapolated
from samestep.experiments.advising.validate import VALIDATIONS, errors, far_rows
from samestep.experiments.printing.text import github

_WIDTH = 125
"""The number of characters in a line of the page."""


def vtrain() -> str:
    """Returns the errors on vTrain's rows, by group."""
    return errors(VALIDATIONS["vtrain"](None))


def elsewhere() -> str:
    """Returns the errors on other published tables, and each figure that is far off with its cause."""
    parts = []
    for name in VALIDATIONS:
        if name != "vtrain":
            found = VALIDATIONS[name](None)
            far = far_rows(found, _WIDTH).replace(":\n", ":\n\n", 1)
            parts += [f"`--validate {name}`: {found.title}. {found.split}.", errors(found), *([far] if far else [])]
    return "\n\n".join(parts)


def constants() -> str:
    """Returns the constants that were measured on the A100, with the source of each."""
    cluster, server = load_machine(CLUSTER), load_machine(SERVER)
    rows = []
    for name, rate in RATES.items():
        if rate.is_measured:
            value, other = getattr(cluster, name), getattr(server, name)
            shown = f"{value:g}" if value == other else f"{value:g} (server: {other:g})"
            rows.append([f"`{name}`", shown, rate.unit, cluster.sources[name]])
    return github(["constant", "value", "unit", "source"], rows)


def extrapolation() -> str:
    """Returns a sentence about how far constants from smaller runs are off on larger ones."""
    found = extrapolated(carried_rows())
    many, wider, widest = (
        percent(found[name].mape, 1)
        for name in (
            "many nodes, fitted to one node",
            *(f"{on}, fitted to hidden 1024" for on in ("one node", "many nodes")),
        )
    )
    return (
        f"Constants that were fitted to the measured steps on one node are off by {many} on average on 64 to 512 GPUs.\n"
        f"Constants of models of hidden size 1,024 alone are off by {wider} on hidden size 2,048, and by {widest} on 3,072 and\n"
        "8,192 on many nodes."
    )
