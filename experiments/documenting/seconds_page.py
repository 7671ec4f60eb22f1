"""The tables of docs/seconds.md: errors of predicted seconds, and the constants behind them."""

from samestep.common.seconds.machine import RATES, load_machine
from samestep.common.seconds.validation import CLUSTER, SERVER, carried_rows, extrapolated
from samestep.experiments.advising.validate import VALIDATIONS, errors
from samestep.experiments.printing.text import github


def vtrain() -> str:
    """Returns the errors on vTrain's rows, by group."""
    return errors(VALIDATIONS["vtrain"](None))


def elsewhere() -> str:
    """Returns the errors on tables that nothing was fitted to."""
    parts = [(name, VALIDATIONS[name](None)) for name in VALIDATIONS if name != "vtrain"]
    return "\n\n".join(f"`--validate {name}`: {found.title}.\n\n{errors(found)}" for name, found in parts)


def constants() -> str:
    """Returns what was measured of the A100, with the source of each value."""
    cluster, server = load_machine(CLUSTER), load_machine(SERVER)
    rows = []
    for name, rate in RATES.items():
        if rate.is_measured:
            value, other = getattr(cluster, name), getattr(server, name)
            shown = f"{value:g}" if value == other else f"{value:g} (server: {other:g})"
            rows.append([f"`{name}`", shown, rate.unit, cluster.sources[name]])
    return github(["constant", "value", "unit", "source"], rows)


def extrapolation() -> str:
    """Returns how far the constants of smaller runs are off on larger ones, in a sentence."""
    found = extrapolated(carried_rows())
    many, wider, widest = (
        f"{found[name].mape:.1%}".replace("%", " %")
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
