"""Finds what keeps the speeds of two runs from being ranked: differences other than the strategy, and disturbances."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from samestep.common.errors import percent, unknown
from samestep.common.flags import split_list

MOST_TAKEN = 0.1
"""The largest share of the time of a run's cores that others may have used while the clock ran."""

DISTORTED = {
    "shared-cores": "devices of a CPU have to share its cores, so that they wait for each other",
    "hosts": "the hosts of a run differ in cores, memory, device, system or versions",
    "emulation": "something else runs in place of the strategy's own API",
}
"""What distorts the speed of a strategy in the same way in each of its runs: name -> meaning."""
DISTURBED = {
    "compilation": "a function was compiled or traced while the clock ran",
    "busy": f"others had more than {percent(MOST_TAKEN)} of the cores' time while the clock ran",
}
"""What disturbs one run by chance: name -> meaning."""
CONFOUNDS: Mapping[str, str] = {
    "dtype": "the type of parameters, activations and gradients",
    "optimizer-dtype": "the type of the optimizer state",
    "optimizer": "the optimizer, with its learning rate",
    "batch": "the global batch size",
    "data": "the examples, by their sha256",
    "order": "the order in which the examples come, by the sha256 of the first batches",
    "parameters": "the number of parameters of the model",
    "workload": "another workload, by name and digest, whose data and number of parameters are the same",
    "techniques": "accumulation, clipping and the other techniques",
    "threads": "threads per device",
    "bandwidth": "what the link of each process carries (--bandwidth)",
    "cores": "the cores, and the accelerators if there are any",
    "versions": "Python, NumPy, samestep and its commit, and the packages that both runs use",
    "machine": "host, system, CPU and memory",
    **DISTORTED,
    **DISTURBED,
}
"""What keeps two speeds from being ranked: name -> meaning. The names are what `--allow` takes."""
ALLOW = f"rank rows by their speed despite these confounds; may be given several times: {', '.join(CONFOUNDS)}"
"""The help of `--allow`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Everything besides its strategy that may have affected the speed of a run.

    Attributes:
        label: The run's name in messages.
        facts: Confound -> part -> value. A part that only one of two runs has is not compared.
        distorted: Which of `DISTORTED` the run has: name -> how.
        compilations: Functions that were compiled or traced while the clock ran.
        others_share: The share of its cores' time that other processes had while the clock ran; None if it was not measured.
        stolen_share: The share that other virtual machines had.
    """

    label: str
    facts: Mapping[str, Mapping[str, str]]
    distorted: Mapping[str, str] = dataclasses.field(default_factory=dict)
    compilations: int = 0
    others_share: float | None = None
    stolen_share: float | None = None


@dataclasses.dataclass(frozen=True)
class Confound:
    """One reason not to rank two runs.

    Attributes:
        name: One of `CONFOUNDS`.
        differs: What each of the two runs has; "" if a single run is at fault.
        at_fault: The runs at fault, as messages call them, and what is wrong with each.
    """

    name: str
    differs: str = ""
    at_fault: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} ({self.differs or '; '.join(f'{run}: {how}' for run, how in self.at_fault.items())})"


def check_allowed(texts: Iterable[str]) -> frozenset[str]:
    """Parses the names of confounds to allow, separated by commas.

    Raises:
        ConfigError: A name is not in `CONFOUNDS`.
    """
    example = ",".join([*CONFOUNDS][:2])
    given = frozenset(name for text in texts for name in split_list(text, f"--allow '{text}'", "confound", example))
    for name in sorted(given - set(CONFOUNDS)):
        raise unknown("confound", name, CONFOUNDS)
    return given


def find_confounds(one: Circumstances, other: Circumstances, is_same_strategy: bool = False) -> list[Confound]:
    """Finds what keeps two runs from being ranked, in the order of `CONFOUNDS`.

    Args:
        one: A run.
        other: The run to rank it against.
        is_same_strategy: Whether both runs have the same strategy; a distortion that both share then does not count.
    """
    found = {name: Confound(name, differs) for name, differs in _differences(one, other).items()}
    at_fault = {
        name: {run.label: run.distorted[name] for run in (one, other) if name in run.distorted} for name in DISTORTED
    }
    for name in DISTORTED:
        if is_same_strategy and one.distorted.get(name) == other.distorted.get(name):
            at_fault[name] = {}
    at_fault["compilation"] = {
        run.label: f"{run.compilations} in timed windows" for run in (one, other) if run.compilations
    }
    at_fault["busy"] = {run.label: taken for run in (one, other) if (taken := _taken(run))}
    found |= {name: Confound(name, at_fault=runs) for name, runs in at_fault.items() if runs}
    return [found[name] for name in CONFOUNDS if name in found]


def find_in_rounds(
    pairs: Sequence[tuple[Circumstances, Circumstances]], is_same_strategy: bool = False
) -> list[Confound]:
    """Finds the confounds that keep two rows from being ranked, in any of their rounds.

    Args:
        pairs: The runs of both rows in each round.
        is_same_strategy: As for `find_confounds`.
    """
    seen: dict[str, list[str]] = {}
    seen_at: dict[str, dict[str, list[str]]] = {}
    for pair in pairs:
        for each in find_confounds(*pair, is_same_strategy):
            seen.setdefault(each.name, []).extend([each.differs] if each.differs else [])
            for run, how in each.at_fault.items():
                seen_at.setdefault(each.name, {}).setdefault(run, []).append(how)

    def say(texts: Sequence[str]) -> str:
        seldom = f", in {len(texts)} of {len(pairs)} rounds" if len(texts) < len(pairs) else ""
        return texts[0] + seldom if texts else ""

    return [
        Confound(name, say(seen[name]), {run: say(texts) for run, texts in seen_at.get(name, {}).items()})
        for name in CONFOUNDS
        if name in seen
    ]


def split_allowed(confounds: Iterable[Confound], allowed: Collection[str]) -> tuple[list[Confound], list[Confound]]:
    """Splits the confounds into those that prevent a ranking and those that the user allowed.

    Args:
        confounds: What was found.
        allowed: The names of the confounds that the user allowed.
    """
    every = list(confounds)
    return [each for each in every if each.name not in allowed], [each for each in every if each.name in allowed]


def _differences(one: Circumstances, other: Circumstances) -> dict[str, str]:
    found = {}
    for name in CONFOUNDS:
        mine, theirs = one.facts.get(name, {}), other.facts.get(name, {})
        apart = [part for part in mine if part in theirs and mine[part] != theirs[part]]
        if name == "workload" and len(apart) < len(mine):  # the same workload, spelled or described differently
            continue
        if apart:
            found[name] = ", ".join(f"{part} {mine[part]} and {theirs[part]}".strip() for part in apart)
    if "data" in found or "parameters" in found:
        found.pop("workload", None)
    return found


def _taken(run: Circumstances) -> str:
    """Returns how much of the run's cores others used; "" if that is within the limit."""
    others, stolen = run.others_share or 0.0, run.stolen_share or 0.0
    if others + stolen <= MOST_TAKEN:
        return ""
    takers = {"other processes": others, "other machines": stolen}
    return " and ".join(f"{percent(share)} to {who}" for who, share in takers.items() if share >= 0.005)
