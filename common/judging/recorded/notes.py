"""What is worth knowing beside a verdict on two recorded runs: in what else their records differ."""

from samestep.common.judging.recorded.walk import Walk


def find_notes(walk: Walk) -> tuple[str, ...]:
    """Returns in what the two records differ beside their numbers: versions, frameworks, tensors that only one has."""
    one, other = walk.a.header, walk.b.header
    said = []
    for what, a, b in (("", one.versions, other.versions), ("", one.environment, other.environment)):
        apart = [
            f"{name} {a.get(name, 'none')} and {b.get(name, 'none')}"
            for name in {**a, **b}
            if a.get(name) != b.get(name)
        ]
        if apart:
            said.append(f"{'versions' if a is one.versions else 'environment'} of A and B: {', '.join(apart)}{what}")
    if one.framework != other.framework:
        said.append(f"A is a record of {one.framework}, B of {other.framework}")
    for who, names in (("A", walk.pairing.only_a), ("B", walk.pairing.only_b)):
        if names:
            rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
            said.append(f"only {who} has {', '.join(names[:3])}{rest}")
    return tuple(said)
