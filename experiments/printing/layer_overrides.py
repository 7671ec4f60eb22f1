"""What every table says of layers that a request has switched."""


def switched(dropout: bool | None, batch_norm: str) -> str:
    """Returns what was done to layers of the user's model that depend on how a batch is split, as a clause; "" for nothing.

    Args:
        dropout: As in `RunConfig`.
        batch_norm: Likewise.
    """
    said = ["without dropout"] if dropout is False else []
    return ", ".join([*said, *([f"batch normalisation {batch_norm}"] if batch_norm != "local" else [])])
